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
  min_price decimal(19,4) NULL default NULL,
  max_price decimal(19,4) NULL default NULL,
  onsale tinyint(1) NULL default 0,
  stock_quantity double NULL default NULL,
  stock_status varchar(100) NULL default 'instock',
  total_sales bigint(20) NULL default 0,
  PRIMARY KEY (product_id),
  KEY stock_status (stock_status),
  KEY stock_quantity (stock_quantity)
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
  post_title text NOT NULL,
  post_status varchar(20) NOT NULL default 'publish',
  post_modified datetime NOT NULL default '0000-00-00 00:00:00',
  post_modified_gmt datetime NOT NULL default '0000-00-00 00:00:00',
  post_parent bigint(20) unsigned NOT NULL default '0',
  post_type varchar(20) NOT NULL default 'post',
  PRIMARY KEY (ID),
  KEY type_status_date (post_type, post_status, post_date, ID),
  KEY post_parent (post_parent)
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
  KEY comment_post_ID (comment_post_ID)
) DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_unicode_520_ci;

CREATE TABLE wp_options (
  option_id bigint(20) unsigned NOT NULL auto_increment,
  option_name varchar(191) NOT NULL default '',
  option_value longtext NOT NULL,
  autoload varchar(20) NOT NULL default 'yes',
  PRIMARY KEY (option_id),
  UNIQUE KEY option_name (option_name)
) DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_unicode_520_ci;
