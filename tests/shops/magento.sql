-- Magento 2.4 with Multi-Source Inventory: the tables that a canceled order touches, with the columns and types of
-- app/code/Magento/{Sales,SalesRule,Store,Config,Catalog,CatalogInventory,Downloadable}/etc/db_schema.xml (https://github.com/magento/magento2) and
-- Inventory{Reservations,Sales}/etc/db_schema.xml (https://github.com/magento/inventory); OSL-3.0.
-- Columns that only describe are left out.

CREATE TABLE store_website (
  website_id smallint unsigned NOT NULL AUTO_INCREMENT PRIMARY KEY,
  code varchar(32),
  name varchar(64),
  UNIQUE KEY STORE_WEBSITE_CODE (code)
) ENGINE = InnoDB;

CREATE TABLE store (
  store_id smallint unsigned NOT NULL AUTO_INCREMENT PRIMARY KEY,
  code varchar(32),
  website_id smallint unsigned NOT NULL DEFAULT 0,
  name varchar(255) NOT NULL
) ENGINE = InnoDB;

CREATE TABLE catalog_product_entity (
  entity_id int unsigned NOT NULL AUTO_INCREMENT PRIMARY KEY,
  attribute_set_id smallint unsigned NOT NULL DEFAULT 0,
  type_id varchar(32) NOT NULL DEFAULT 'simple',
  sku varchar(64) NOT NULL,
  KEY CATALOG_PRODUCT_ENTITY_SKU (sku)
) ENGINE = InnoDB;

CREATE TABLE cataloginventory_stock_item (
  item_id int unsigned NOT NULL AUTO_INCREMENT PRIMARY KEY,
  product_id int unsigned NOT NULL DEFAULT 0,
  stock_id smallint unsigned NOT NULL DEFAULT 0,
  qty decimal(12,4),
  manage_stock smallint unsigned NOT NULL DEFAULT 0,
  use_config_manage_stock smallint unsigned NOT NULL DEFAULT 1,
  website_id smallint unsigned NOT NULL DEFAULT 0,
  UNIQUE KEY CATALOGINVENTORY_STOCK_ITEM_PRODUCT_ID_STOCK_ID (product_id, stock_id)
) ENGINE = InnoDB;

CREATE TABLE core_config_data (
  config_id int unsigned NOT NULL AUTO_INCREMENT PRIMARY KEY,
  scope varchar(8) NOT NULL DEFAULT 'default',
  scope_id int NOT NULL DEFAULT 0,
  path varchar(255) NOT NULL DEFAULT 'general',
  value text,
  UNIQUE KEY CORE_CONFIG_DATA_SCOPE_SCOPE_ID_PATH (scope, scope_id, path)
) ENGINE = InnoDB;

CREATE TABLE downloadable_link_purchased_item (
  item_id int unsigned NOT NULL AUTO_INCREMENT PRIMARY KEY,
  order_item_id int unsigned DEFAULT 0,
  status varchar(50),
  updated_at timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP,
  KEY DOWNLOADABLE_LINK_PURCHASED_ITEM_ORDER_ITEM_ID (order_item_id)
) ENGINE = InnoDB;

CREATE TABLE sales_order (
  entity_id int unsigned NOT NULL AUTO_INCREMENT PRIMARY KEY,
  state varchar(32),
  status varchar(32),
  coupon_code varchar(255),
  protect_code varchar(255),
  store_id smallint unsigned,
  customer_id int unsigned,
  base_discount_amount decimal(20,4),
  base_discount_canceled decimal(20,4),
  base_discount_invoiced decimal(20,4),
  base_grand_total decimal(20,4),
  base_shipping_amount decimal(20,4),
  base_shipping_canceled decimal(20,4),
  base_shipping_invoiced decimal(20,4),
  base_subtotal decimal(20,4),
  base_subtotal_canceled decimal(20,4),
  base_subtotal_invoiced decimal(20,4),
  base_tax_amount decimal(20,4),
  base_tax_canceled decimal(20,4),
  base_tax_invoiced decimal(20,4),
  base_total_canceled decimal(20,4),
  base_total_paid decimal(20,4),
  discount_amount decimal(20,4),
  discount_canceled decimal(20,4),
  discount_invoiced decimal(20,4),
  grand_total decimal(20,4),
  shipping_amount decimal(20,4),
  shipping_canceled decimal(20,4),
  shipping_invoiced decimal(20,4),
  subtotal decimal(20,4),
  subtotal_canceled decimal(20,4),
  subtotal_invoiced decimal(20,4),
  tax_amount decimal(20,4),
  tax_canceled decimal(20,4),
  tax_invoiced decimal(20,4),
  total_canceled decimal(20,4),
  total_paid decimal(20,4),
  increment_id varchar(50),
  applied_rule_ids varchar(128),
  customer_email varchar(128),
  created_at timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP,
  updated_at timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP,
  UNIQUE KEY SALES_ORDER_INCREMENT_ID_STORE_ID (increment_id, store_id),
  KEY SALES_ORDER_STATUS (status),
  KEY SALES_ORDER_STATE (state),
  KEY SALES_ORDER_UPDATED_AT (updated_at)
) ENGINE = InnoDB;

CREATE TABLE sales_order_grid (
  entity_id int unsigned NOT NULL PRIMARY KEY,
  status varchar(32),
  store_id smallint unsigned,
  grand_total decimal(20,4),
  increment_id varchar(50),
  created_at timestamp NULL,
  updated_at timestamp NULL,
  KEY SALES_ORDER_GRID_STATUS (status)
) ENGINE = InnoDB;

CREATE TABLE sales_order_item (
  item_id int unsigned NOT NULL AUTO_INCREMENT PRIMARY KEY,
  order_id int unsigned NOT NULL DEFAULT 0,
  parent_item_id int unsigned,
  store_id smallint unsigned,
  product_id int unsigned,
  product_type varchar(255),
  product_options longtext,
  sku varchar(255),
  name varchar(255),
  qty_canceled decimal(12,4) DEFAULT 0,
  qty_invoiced decimal(12,4) DEFAULT 0,
  qty_ordered decimal(12,4) DEFAULT 0,
  qty_refunded decimal(12,4) DEFAULT 0,
  qty_shipped decimal(12,4) DEFAULT 0,
  base_tax_amount decimal(20,4) DEFAULT 0,
  tax_canceled decimal(12,4),
  discount_tax_compensation_amount decimal(20,4),
  discount_tax_compensation_canceled decimal(20,4),
  KEY SALES_ORDER_ITEM_ORDER_ID (order_id)
) ENGINE = InnoDB;

CREATE TABLE sales_order_payment (
  entity_id int unsigned NOT NULL AUTO_INCREMENT PRIMARY KEY,
  parent_id int unsigned NOT NULL,
  method varchar(128),
  amount_ordered decimal(20,4),
  amount_paid decimal(20,4),
  amount_authorized decimal(20,4),
  amount_canceled decimal(20,4),
  KEY SALES_ORDER_PAYMENT_PARENT_ID (parent_id)
) ENGINE = InnoDB;

CREATE TABLE sales_payment_transaction (
  transaction_id int unsigned NOT NULL AUTO_INCREMENT PRIMARY KEY,
  parent_id int unsigned,
  order_id int unsigned NOT NULL DEFAULT 0,
  payment_id int unsigned NOT NULL DEFAULT 0,
  txn_id varchar(100),
  txn_type varchar(15),
  is_closed smallint unsigned NOT NULL DEFAULT 1,
  UNIQUE KEY SALES_PAYMENT_TRANSACTION_ORDER_ID_PAYMENT_ID_TXN_ID (order_id, payment_id, txn_id)
) ENGINE = InnoDB;

CREATE TABLE inventory_stock_sales_channel (
  type varchar(64) NOT NULL,
  code varchar(64) NOT NULL,
  stock_id int unsigned NOT NULL,
  PRIMARY KEY (type, code)
) ENGINE = InnoDB;

CREATE TABLE inventory_reservation (
  reservation_id int unsigned NOT NULL AUTO_INCREMENT PRIMARY KEY,
  stock_id int unsigned NOT NULL,
  sku varchar(64) NOT NULL,
  quantity decimal(10,4) NOT NULL DEFAULT 0,
  metadata varchar(255),
  KEY INVENTORY_RESERVATION_STOCK_ID_SKU_QUANTITY (stock_id, sku, quantity)
) ENGINE = InnoDB;

CREATE TABLE salesrule (
  rule_id int unsigned NOT NULL AUTO_INCREMENT PRIMARY KEY,
  name varchar(255),
  uses_per_customer int NOT NULL DEFAULT 0,
  is_active smallint NOT NULL DEFAULT 0,
  times_used int unsigned NOT NULL DEFAULT 0,
  coupon_type smallint unsigned NOT NULL DEFAULT 1,
  uses_per_coupon int NOT NULL DEFAULT 0
) ENGINE = InnoDB;

CREATE TABLE salesrule_coupon (
  coupon_id int unsigned NOT NULL AUTO_INCREMENT PRIMARY KEY,
  rule_id int unsigned NOT NULL,
  code varchar(255),
  usage_limit int unsigned,
  times_used int unsigned NOT NULL DEFAULT 0,
  UNIQUE KEY SALESRULE_COUPON_CODE (code)
) ENGINE = InnoDB;

CREATE TABLE salesrule_coupon_usage (
  coupon_id int unsigned NOT NULL,
  customer_id int unsigned NOT NULL,
  times_used int unsigned NOT NULL DEFAULT 0,
  PRIMARY KEY (coupon_id, customer_id)
) ENGINE = InnoDB;

CREATE TABLE salesrule_customer (
  rule_customer_id int unsigned NOT NULL AUTO_INCREMENT PRIMARY KEY,
  rule_id int unsigned NOT NULL DEFAULT 0,
  customer_id int unsigned NOT NULL DEFAULT 0,
  times_used smallint unsigned NOT NULL DEFAULT 0,
  KEY SALESRULE_CUSTOMER_RULE_ID_CUSTOMER_ID (rule_id, customer_id)
) ENGINE = InnoDB;
