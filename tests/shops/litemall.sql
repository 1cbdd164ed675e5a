-- linlinjava/litemall: the tables that an unpaid order touches, with the columns and types of
-- litemall-db/sql/litemall_table.sql at commit a1ef964a of https://github.com/linlinjava/litemall (MIT).
-- Comments and columns that only describe are left out.

CREATE TABLE litemall_order (
  id int(11) NOT NULL AUTO_INCREMENT,
  user_id int(11) NOT NULL,
  order_sn varchar(63) NOT NULL,
  order_status smallint(6) NOT NULL,
  aftersale_status smallint(6) DEFAULT '0',
  consignee varchar(63) NOT NULL,
  mobile varchar(63) NOT NULL,
  address varchar(127) NOT NULL,
  message varchar(512) NOT NULL DEFAULT '',
  goods_price decimal(10,2) NOT NULL,
  freight_price decimal(10,2) NOT NULL,
  coupon_price decimal(10,2) NOT NULL,
  integral_price decimal(10,2) NOT NULL,
  groupon_price decimal(10,2) NOT NULL,
  order_price decimal(10,2) NOT NULL,
  actual_price decimal(10,2) NOT NULL,
  pay_id varchar(63) DEFAULT NULL,
  pay_time datetime DEFAULT NULL,
  ship_sn varchar(63) DEFAULT NULL,
  ship_channel varchar(63) DEFAULT NULL,
  ship_time datetime DEFAULT NULL,
  refund_amount decimal(10,2) DEFAULT NULL,
  refund_type varchar(63) DEFAULT NULL,
  refund_content varchar(127) DEFAULT NULL,
  refund_time datetime DEFAULT NULL,
  confirm_time datetime DEFAULT NULL,
  comments smallint(6) DEFAULT '0',
  end_time datetime DEFAULT NULL,
  add_time datetime DEFAULT NULL,
  update_time datetime DEFAULT NULL,
  deleted tinyint(1) DEFAULT '0',
  PRIMARY KEY (id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;

CREATE TABLE litemall_order_goods (
  id int(11) NOT NULL AUTO_INCREMENT,
  order_id int(11) NOT NULL DEFAULT '0',
  goods_id int(11) NOT NULL DEFAULT '0',
  goods_name varchar(127) NOT NULL DEFAULT '',
  goods_sn varchar(63) NOT NULL DEFAULT '',
  product_id int(11) NOT NULL DEFAULT '0',
  number smallint(5) NOT NULL DEFAULT '0',
  price decimal(10,2) NOT NULL DEFAULT '0.00',
  specifications varchar(1023) NOT NULL,
  pic_url varchar(255) NOT NULL DEFAULT '',
  comment int(11) DEFAULT '0',
  add_time datetime DEFAULT NULL,
  update_time datetime DEFAULT NULL,
  deleted tinyint(1) DEFAULT '0',
  PRIMARY KEY (id),
  KEY order_id (order_id),
  KEY goods_id (goods_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;

CREATE TABLE litemall_goods_product (
  id int(11) NOT NULL AUTO_INCREMENT,
  goods_id int(11) NOT NULL DEFAULT '0',
  specifications varchar(1023) NOT NULL,
  price decimal(10,2) NOT NULL DEFAULT '0.00',
  number int(11) NOT NULL DEFAULT '0',
  url varchar(125) DEFAULT NULL,
  add_time datetime DEFAULT NULL,
  update_time datetime DEFAULT NULL,
  deleted tinyint(1) DEFAULT '0',
  PRIMARY KEY (id),
  KEY goods_id (goods_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;

CREATE TABLE litemall_coupon_user (
  id int(11) NOT NULL AUTO_INCREMENT,
  user_id int(11) NOT NULL,
  coupon_id int(11) NOT NULL,
  status smallint(6) DEFAULT '0',
  used_time datetime DEFAULT NULL,
  start_time datetime DEFAULT NULL,
  end_time datetime DEFAULT NULL,
  order_id int(11) DEFAULT NULL,
  add_time datetime DEFAULT NULL,
  update_time datetime DEFAULT NULL,
  deleted tinyint(1) DEFAULT '0',
  PRIMARY KEY (id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;
