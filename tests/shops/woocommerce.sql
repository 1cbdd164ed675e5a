-- WooCommerce with HPOS: the tables that a cancelled order touches, with the columns, types and keys of
-- OrdersTableDataStore::get_database_schema and WC_Install::get_schema (https://github.com/woocommerce/woocommerce,
-- plugins/woocommerce, version 10), and of wp_get_db_schema (https://github.com/WordPress/WordPress).

CREATE TABLE wp_wc_orders (
  id bigint(20) unsigned,
  status varchar(20) null,
  currency varchar(10) null,
  type varchar(20) null,
  tax_amount decimal(26,8) null,
  total_amount decimal(26,8) null,
  customer_id bigint(20) unsigned null,
  billing_email varchar(320) null,
  date_created_gmt datetime null,
  date_updated_gmt datetime null,
  parent_order_id bigint(20) unsigned null,
  payment_method varchar(100) null,
  payment_method_title text null,
  transaction_id varchar(100) null,
  ip_address varchar(100) null,
  user_agent text null,
  customer_note text null,
  PRIMARY KEY (id),
  KEY status (status),
  KEY date_created (date_created_gmt),
  KEY customer_id_billing_email (customer_id, billing_email(171)),
  KEY billing_email (billing_email(191)),
  KEY type_status_date (type, status, date_created_gmt),
  KEY parent_order_id (parent_order_id),
  KEY date_updated (date_updated_gmt)
) DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_unicode_520_ci;

CREATE TABLE wp_wc_order_operational_data (
  id bigint(20) unsigned auto_increment primary key,
  order_id bigint(20) unsigned NULL,
  created_via varchar(100) NULL,
  woocommerce_version varchar(20) NULL,
  prices_include_tax tinyint(1) NULL,
  coupon_usages_are_counted tinyint(1) NULL,
  download_permission_granted tinyint(1) NULL,
  cart_hash varchar(100) NULL,
  new_order_email_sent tinyint(1) NULL,
  order_key varchar(100) NULL,
  order_stock_reduced tinyint(1) NULL,
  date_paid_gmt datetime NULL,
  date_completed_gmt datetime NULL,
  shipping_tax_amount decimal(26,8) NULL,
  shipping_total_amount decimal(26,8) NULL,
  discount_tax_amount decimal(26,8) NULL,
  discount_total_amount decimal(26,8) NULL,
  recorded_sales tinyint(1) NULL,
  UNIQUE KEY order_id (order_id),
  KEY order_key (order_key)
) DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_unicode_520_ci;

CREATE TABLE wp_wc_orders_meta (
  id bigint(20) unsigned auto_increment primary key,
  order_id bigint(20) unsigned null,
  meta_key varchar(255),
  meta_value text null,
  KEY meta_key_value (meta_key(100), meta_value(82)),
  KEY order_id_meta_key_meta_value (order_id, meta_key(100), meta_value(82))
) DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_unicode_520_ci;

CREATE TABLE wp_woocommerce_order_items (
  order_item_id bigint(20) unsigned NOT NULL auto_increment,
  order_item_name text NOT NULL,
  order_item_type varchar(200) NOT NULL DEFAULT '',
  order_id bigint(20) unsigned NOT NULL,
  PRIMARY KEY (order_item_id),
  KEY order_id (order_id)
) DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_unicode_520_ci;

CREATE TABLE wp_woocommerce_order_itemmeta (
  meta_id bigint(20) unsigned NOT NULL auto_increment,
  order_item_id bigint(20) unsigned NOT NULL,
  meta_key varchar(255) default NULL,
  meta_value longtext NULL,
  PRIMARY KEY (meta_id),
  KEY order_item_id (order_item_id),
  KEY meta_key (meta_key(32))
) DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_unicode_520_ci;

CREATE TABLE wp_wc_reserved_stock (
  order_id bigint(20) NOT NULL,
  product_id bigint(20) NOT NULL,
  stock_quantity double NOT NULL DEFAULT 0,
  timestamp datetime NOT NULL DEFAULT '0000-00-00 00:00:00',
  expires datetime NOT NULL DEFAULT '0000-00-00 00:00:00',
  PRIMARY KEY (order_id, product_id),
  KEY product_id_expires (product_id, expires)
) DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_unicode_520_ci;

CREATE TABLE wp_wc_product_meta_lookup (
  product_id bigint(20) NOT NULL,
  sku varchar(100) NULL default '',
  global_unique_id varchar(100) NULL default '',
  `virtual` tinyint(1) NULL default 0,
  downloadable tinyint(1) NULL default 0,
  min_price decimal(19,4) NULL default NULL,
  max_price decimal(19,4) NULL default NULL,
  onsale tinyint(1) NULL default 0,
  stock_quantity double NULL default NULL,
  stock_status varchar(100) NULL default 'instock',
  rating_count bigint(20) NULL default 0,
  average_rating decimal(3,2) NULL default 0.00,
  total_sales bigint(20) NULL default 0,
  tax_status varchar(100) NULL default 'taxable',
  tax_class varchar(100) NULL default '',
  PRIMARY KEY (product_id),
  KEY `virtual` (`virtual`),
  KEY downloadable (downloadable),
  KEY stock_status (stock_status),
  KEY stock_quantity (stock_quantity),
  KEY onsale (onsale),
  KEY min_max_price (min_price, max_price),
  KEY sku (sku(50))
) DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_unicode_520_ci;

CREATE TABLE wp_wc_product_attributes_lookup (
  product_id bigint(20) NOT NULL,
  product_or_parent_id bigint(20) NOT NULL,
  taxonomy varchar(32) NOT NULL,
  term_id bigint(20) NOT NULL,
  is_variation_attribute tinyint(1) NOT NULL,
  in_stock tinyint(1) NOT NULL,
  INDEX is_variation_attribute_term_id (is_variation_attribute, term_id),
  PRIMARY KEY (product_or_parent_id, term_id, product_id, taxonomy)
) DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_unicode_520_ci;

CREATE TABLE wp_wc_order_stats (
  order_id bigint(20) unsigned NOT NULL,
  parent_id bigint(20) unsigned DEFAULT 0 NOT NULL,
  date_created datetime DEFAULT '0000-00-00 00:00:00' NOT NULL,
  date_created_gmt datetime DEFAULT '0000-00-00 00:00:00' NOT NULL,
  date_paid datetime DEFAULT '0000-00-00 00:00:00',
  date_completed datetime DEFAULT '0000-00-00 00:00:00',
  num_items_sold int(11) DEFAULT 0 NOT NULL,
  total_sales double DEFAULT 0 NOT NULL,
  net_total double DEFAULT 0 NOT NULL,
  returning_customer tinyint(1) DEFAULT NULL,
  status varchar(200) NOT NULL,
  customer_id bigint(20) unsigned NOT NULL,
  PRIMARY KEY (order_id),
  KEY date_created (date_created),
  KEY customer_id (customer_id),
  KEY status (status(191))
) DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_unicode_520_ci;

CREATE TABLE wp_posts (
  ID bigint(20) unsigned NOT NULL auto_increment,
  post_author bigint(20) unsigned NOT NULL default '0',
  post_date datetime NOT NULL default '0000-00-00 00:00:00',
  post_date_gmt datetime NOT NULL default '0000-00-00 00:00:00',
  post_content longtext NOT NULL,
  post_title text NOT NULL,
  post_excerpt text NOT NULL,
  post_status varchar(20) NOT NULL default 'publish',
  comment_status varchar(20) NOT NULL default 'open',
  ping_status varchar(20) NOT NULL default 'open',
  post_password varchar(255) NOT NULL default '',
  post_name varchar(200) NOT NULL default '',
  to_ping text NOT NULL,
  pinged text NOT NULL,
  post_modified datetime NOT NULL default '0000-00-00 00:00:00',
  post_modified_gmt datetime NOT NULL default '0000-00-00 00:00:00',
  post_content_filtered longtext NOT NULL,
  post_parent bigint(20) unsigned NOT NULL default '0',
  guid varchar(255) NOT NULL default '',
  menu_order int(11) NOT NULL default '0',
  post_type varchar(20) NOT NULL default 'post',
  post_mime_type varchar(100) NOT NULL default '',
  comment_count bigint(20) NOT NULL default '0',
  PRIMARY KEY (ID),
  KEY post_name (post_name(191)),
  KEY type_status_date (post_type, post_status, post_date, ID),
  KEY post_parent (post_parent),
  KEY post_author (post_author)
) DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_unicode_520_ci;

CREATE TABLE wp_terms (
  term_id bigint(20) unsigned NOT NULL auto_increment,
  name varchar(200) NOT NULL default '',
  slug varchar(200) NOT NULL default '',
  term_group bigint(10) NOT NULL default 0,
  PRIMARY KEY (term_id),
  KEY slug (slug(191)),
  KEY name (name(191))
) DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_unicode_520_ci;

CREATE TABLE wp_term_taxonomy (
  term_taxonomy_id bigint(20) unsigned NOT NULL auto_increment,
  term_id bigint(20) unsigned NOT NULL default 0,
  taxonomy varchar(32) NOT NULL default '',
  description longtext NOT NULL,
  parent bigint(20) unsigned NOT NULL default 0,
  count bigint(20) NOT NULL default 0,
  PRIMARY KEY (term_taxonomy_id),
  UNIQUE KEY term_id_taxonomy (term_id, taxonomy),
  KEY taxonomy (taxonomy)
) DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_unicode_520_ci;

CREATE TABLE wp_term_relationships (
  object_id bigint(20) unsigned NOT NULL default 0,
  term_taxonomy_id bigint(20) unsigned NOT NULL default 0,
  term_order int(11) NOT NULL default 0,
  PRIMARY KEY (object_id, term_taxonomy_id),
  KEY term_taxonomy_id (term_taxonomy_id)
) DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_unicode_520_ci;

CREATE TABLE wp_postmeta (
  meta_id bigint(20) unsigned NOT NULL auto_increment,
  post_id bigint(20) unsigned NOT NULL default '0',
  meta_key varchar(255) default NULL,
  meta_value longtext,
  PRIMARY KEY (meta_id),
  KEY post_id (post_id),
  KEY meta_key (meta_key(191))
) DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_unicode_520_ci;

CREATE TABLE wp_comments (
  comment_ID bigint(20) unsigned NOT NULL auto_increment,
  comment_post_ID bigint(20) unsigned NOT NULL default '0',
  comment_author tinytext NOT NULL,
  comment_author_email varchar(100) NOT NULL default '',
  comment_author_url varchar(200) NOT NULL default '',
  comment_author_IP varchar(100) NOT NULL default '',
  comment_date datetime NOT NULL default '0000-00-00 00:00:00',
  comment_date_gmt datetime NOT NULL default '0000-00-00 00:00:00',
  comment_content text NOT NULL,
  comment_karma int(11) NOT NULL default '0',
  comment_approved varchar(20) NOT NULL default '1',
  comment_agent varchar(255) NOT NULL default '',
  comment_type varchar(20) NOT NULL default 'comment',
  comment_parent bigint(20) unsigned NOT NULL default '0',
  user_id bigint(20) unsigned NOT NULL default '0',
  PRIMARY KEY (comment_ID),
  KEY comment_post_ID (comment_post_ID),
  KEY comment_approved_date_gmt (comment_approved, comment_date_gmt),
  KEY comment_date_gmt (comment_date_gmt),
  KEY comment_parent (comment_parent),
  KEY comment_author_email (comment_author_email(10)),
  KEY woo_idx_comment_type (comment_type)
) DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_unicode_520_ci;

CREATE TABLE wp_options (
  option_id bigint(20) unsigned NOT NULL auto_increment,
  option_name varchar(191) NOT NULL default '',
  option_value longtext NOT NULL,
  autoload varchar(20) NOT NULL default 'yes',
  PRIMARY KEY (option_id),
  UNIQUE KEY option_name (option_name)
) DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_unicode_520_ci;
