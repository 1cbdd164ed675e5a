-- PrestaShop 8: the tables that a cancelled order touches (https://github.com/PrestaShop/PrestaShop, install-dev/data/db_structure.sql),
-- orders and their lines without most of their amounts.

CREATE TABLE ps_orders (
  id_order int(10) unsigned NOT NULL auto_increment,
  reference VARCHAR(9),
  id_shop_group INT(11) UNSIGNED NOT NULL DEFAULT '1',
  id_shop INT(11) UNSIGNED NOT NULL DEFAULT '1',
  id_carrier int(10) unsigned NOT NULL,
  id_lang int(10) unsigned NOT NULL,
  id_customer int(10) unsigned NOT NULL,
  id_cart int(10) unsigned NOT NULL,
  id_currency int(10) unsigned NOT NULL,
  id_address_delivery int(10) unsigned NOT NULL,
  id_address_invoice int(10) unsigned NOT NULL,
  current_state int(10) unsigned NOT NULL,
  secure_key varchar(32) NOT NULL DEFAULT '-1',
  payment varchar(255) NOT NULL,
  conversion_rate decimal(13, 6) NOT NULL DEFAULT 1,
  module varchar(255) DEFAULT NULL,
  total_paid decimal(20, 6) NOT NULL DEFAULT '0.00',
  total_paid_real decimal(20, 6) NOT NULL DEFAULT '0.00',
  invoice_number int(10) unsigned NOT NULL DEFAULT '0',
  delivery_number int(10) unsigned NOT NULL DEFAULT '0',
  invoice_date datetime NOT NULL,
  delivery_date datetime NOT NULL,
  valid int(1) unsigned NOT NULL DEFAULT '0',
  date_add datetime NOT NULL,
  date_upd datetime NOT NULL,
  note text,
  PRIMARY KEY (id_order),
  KEY reference (reference),
  KEY id_customer (id_customer),
  KEY current_state (current_state),
  KEY id_shop (id_shop),
  INDEX `date_add` (`date_add`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_unicode_ci;

CREATE TABLE ps_order_detail (
  id_order_detail int(10) unsigned NOT NULL auto_increment,
  id_order int(10) unsigned NOT NULL,
  id_order_invoice int(11) DEFAULT NULL,
  id_warehouse int(10) unsigned DEFAULT '0',
  id_shop int(11) unsigned NOT NULL,
  product_id int(10) unsigned NOT NULL,
  product_attribute_id int(10) unsigned DEFAULT NULL,
  id_customization int(10) unsigned DEFAULT 0,
  product_name text NOT NULL,
  product_quantity int(10) unsigned NOT NULL DEFAULT '0',
  product_quantity_in_stock int(10) NOT NULL DEFAULT '0',
  product_quantity_refunded int(10) unsigned NOT NULL DEFAULT '0',
  product_quantity_return int(10) unsigned NOT NULL DEFAULT '0',
  product_quantity_reinjected int(10) unsigned NOT NULL DEFAULT '0',
  product_price decimal(20, 6) NOT NULL DEFAULT '0.000000',
  product_weight DECIMAL(20, 6) NOT NULL,
  tax_name varchar(16) NOT NULL,
  PRIMARY KEY (id_order_detail),
  KEY order_detail_order (id_order),
  KEY product_id (product_id, product_attribute_id),
  KEY product_attribute_id (product_attribute_id),
  KEY id_order_id_order_detail (id_order, id_order_detail)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_unicode_ci;

CREATE TABLE ps_order_history (
  id_order_history int(10) unsigned NOT NULL auto_increment,
  id_employee int(10) unsigned NOT NULL,
  id_order int(10) unsigned NOT NULL,
  id_order_state int(10) unsigned NOT NULL,
  date_add datetime NOT NULL,
  PRIMARY KEY (id_order_history),
  KEY order_history_order (id_order),
  KEY id_employee (id_employee),
  KEY id_order_state (id_order_state)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_unicode_ci;

CREATE TABLE ps_order_payment (
  id_order_payment INT NOT NULL auto_increment,
  order_reference VARCHAR(9),
  id_currency INT UNSIGNED NOT NULL,
  amount DECIMAL(20, 6) NOT NULL,
  payment_method varchar(255) NOT NULL,
  conversion_rate decimal(13, 6) NOT NULL DEFAULT 1,
  transaction_id VARCHAR(254) NULL,
  date_add DATETIME NOT NULL,
  PRIMARY KEY (id_order_payment),
  KEY order_reference (order_reference)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_unicode_ci;

CREATE TABLE ps_pack (
  id_product_pack int(10) unsigned NOT NULL,
  id_product_item int(10) unsigned NOT NULL,
  id_product_attribute_item int(10) unsigned NOT NULL,
  quantity int(10) unsigned NOT NULL DEFAULT 1,
  PRIMARY KEY (id_product_pack, id_product_item, id_product_attribute_item),
  KEY product_item (id_product_item, id_product_attribute_item)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_unicode_ci;

CREATE TABLE ps_shop_group (
  id_shop_group int(11) unsigned NOT NULL AUTO_INCREMENT,
  name varchar(64) NOT NULL,
  share_customer tinyint(1) NOT NULL,
  share_order tinyint(1) NOT NULL,
  share_stock tinyint(1) NOT NULL,
  active tinyint(1) NOT NULL DEFAULT '1',
  deleted tinyint(1) NOT NULL DEFAULT '0',
  PRIMARY KEY (id_shop_group)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_unicode_ci;

CREATE TABLE ps_stock_available (
  id_stock_available INT(11) UNSIGNED NOT NULL AUTO_INCREMENT,
  id_product INT(11) UNSIGNED NOT NULL,
  id_product_attribute INT(11) UNSIGNED NOT NULL,
  id_shop INT(11) UNSIGNED NOT NULL,
  id_shop_group INT(11) UNSIGNED NOT NULL,
  quantity INT(10) NOT NULL DEFAULT '0',
  physical_quantity INT(11) NOT NULL DEFAULT '0',
  reserved_quantity INT(11) NOT NULL DEFAULT '0',
  depends_on_stock TINYINT(1) UNSIGNED NOT NULL DEFAULT '0',
  out_of_stock TINYINT(1) UNSIGNED NOT NULL DEFAULT '0',
  location VARCHAR(255) NOT NULL DEFAULT '',
  PRIMARY KEY (id_stock_available),
  KEY id_shop (id_shop),
  KEY id_shop_group (id_shop_group),
  KEY id_product (id_product),
  KEY id_product_attribute (id_product_attribute),
  UNIQUE product_sqlstock (id_product, id_product_attribute, id_shop, id_shop_group)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_unicode_ci;
