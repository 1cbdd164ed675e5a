-- A shop of one's own: the tables of config/examples/plain-mysql.toml.

CREATE TABLE orders (
  order_no varchar(32) NOT NULL PRIMARY KEY,
  member_id bigint unsigned NOT NULL,
  status tinyint NOT NULL DEFAULT 0,
  pay_type tinyint NOT NULL DEFAULT 0,
  created_at datetime(3) NOT NULL,
  closed_at datetime(3) NULL,
  deleted tinyint(1) NOT NULL DEFAULT 0
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4;

CREATE TABLE order_items (
  id bigint unsigned NOT NULL AUTO_INCREMENT PRIMARY KEY,
  order_no varchar(32) NOT NULL,
  sku varchar(64) NOT NULL,
  quantity int unsigned NOT NULL,
  KEY (order_no)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4;

CREATE TABLE stock (
  sku varchar(64) NOT NULL PRIMARY KEY,
  quantity int unsigned NOT NULL
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4;

CREATE TABLE coupons (
  code varchar(32) NOT NULL PRIMARY KEY,
  member_id bigint unsigned NOT NULL,
  order_no varchar(32) NULL,
  KEY (order_no)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4;

CREATE TABLE order_log (
  id bigint unsigned NOT NULL AUTO_INCREMENT PRIMARY KEY,
  order_no varchar(32) NOT NULL,
  status tinyint NOT NULL,
  note varchar(200) NOT NULL,
  at datetime(3) NOT NULL
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4;
