-- macrozheng/mall: the tables that a timed-out order touches, with the columns and types of
-- document/sql/mall.sql at commit 74eebe06 of https://github.com/macrozheng/mall (Apache-2.0).
-- Comments, character sets and columns that only describe are left out.

CREATE TABLE oms_order (
  id bigint(20) NOT NULL AUTO_INCREMENT,
  member_id bigint(20) NOT NULL,
  coupon_id bigint(20) NULL DEFAULT NULL,
  order_sn varchar(64) NULL DEFAULT NULL,
  create_time datetime NULL DEFAULT NULL,
  member_username varchar(64) NULL DEFAULT NULL,
  total_amount decimal(10, 2) NULL DEFAULT NULL,
  pay_amount decimal(10, 2) NULL DEFAULT NULL,
  freight_amount decimal(10, 2) NULL DEFAULT NULL,
  promotion_amount decimal(10, 2) NULL DEFAULT NULL,
  integration_amount decimal(10, 2) NULL DEFAULT NULL,
  coupon_amount decimal(10, 2) NULL DEFAULT NULL,
  discount_amount decimal(10, 2) NULL DEFAULT NULL,
  pay_type int(1) NULL DEFAULT NULL,
  source_type int(1) NULL DEFAULT NULL,
  status int(1) NULL DEFAULT NULL,
  order_type int(1) NULL DEFAULT NULL,
  delivery_company varchar(64) NULL DEFAULT NULL,
  delivery_sn varchar(64) NULL DEFAULT NULL,
  auto_confirm_day int(11) NULL DEFAULT NULL,
  integration int(11) NULL DEFAULT NULL,
  growth int(11) NULL DEFAULT NULL,
  receiver_name varchar(100) NOT NULL,
  receiver_phone varchar(32) NOT NULL,
  note varchar(500) NULL DEFAULT NULL,
  confirm_status int(1) NULL DEFAULT NULL,
  delete_status int(1) NOT NULL DEFAULT 0,
  use_integration int(11) NULL DEFAULT NULL,
  payment_time datetime NULL DEFAULT NULL,
  delivery_time datetime NULL DEFAULT NULL,
  receive_time datetime NULL DEFAULT NULL,
  comment_time datetime NULL DEFAULT NULL,
  modify_time datetime NULL DEFAULT NULL,
  PRIMARY KEY (id) USING BTREE
) ENGINE = InnoDB;

CREATE TABLE oms_order_item (
  id bigint(20) NOT NULL AUTO_INCREMENT,
  order_id bigint(20) NULL DEFAULT NULL,
  order_sn varchar(64) NULL DEFAULT NULL,
  product_id bigint(20) NULL DEFAULT NULL,
  product_name varchar(200) NULL DEFAULT NULL,
  product_price decimal(10, 2) NULL DEFAULT NULL,
  product_quantity int(11) NULL DEFAULT NULL,
  product_sku_id bigint(20) NULL DEFAULT NULL,
  product_sku_code varchar(50) NULL DEFAULT NULL,
  PRIMARY KEY (id) USING BTREE
) ENGINE = InnoDB;

CREATE TABLE pms_sku_stock (
  id bigint(20) NOT NULL AUTO_INCREMENT,
  product_id bigint(20) NULL DEFAULT NULL,
  sku_code varchar(64) NOT NULL,
  price decimal(10, 2) NULL DEFAULT NULL,
  stock int(11) NULL DEFAULT 0,
  low_stock int(11) NULL DEFAULT NULL,
  sale int(11) NULL DEFAULT NULL,
  lock_stock int(11) NULL DEFAULT 0,
  PRIMARY KEY (id) USING BTREE
) ENGINE = InnoDB;

CREATE TABLE sms_coupon_history (
  id bigint(20) NOT NULL AUTO_INCREMENT,
  coupon_id bigint(20) NULL DEFAULT NULL,
  member_id bigint(20) NULL DEFAULT NULL,
  coupon_code varchar(64) NULL DEFAULT NULL,
  get_type int(1) NULL DEFAULT NULL,
  create_time datetime NULL DEFAULT NULL,
  use_status int(1) NULL DEFAULT NULL,
  use_time datetime NULL DEFAULT NULL,
  order_id bigint(20) NULL DEFAULT NULL,
  order_sn varchar(100) NULL DEFAULT NULL,
  PRIMARY KEY (id) USING BTREE,
  INDEX idx_member_id (member_id) USING BTREE,
  INDEX idx_coupon_id (coupon_id) USING BTREE
) ENGINE = InnoDB;

CREATE TABLE ums_member (
  id bigint(20) NOT NULL AUTO_INCREMENT,
  username varchar(64) NULL DEFAULT NULL,
  phone varchar(64) NULL DEFAULT NULL,
  status int(1) NULL DEFAULT NULL,
  integration int(11) NULL DEFAULT NULL,
  growth int(11) NULL DEFAULT NULL,
  history_integration int(11) NULL DEFAULT NULL,
  PRIMARY KEY (id) USING BTREE,
  UNIQUE INDEX idx_username (username) USING BTREE,
  UNIQUE INDEX idx_phone (phone) USING BTREE
) ENGINE = InnoDB;
