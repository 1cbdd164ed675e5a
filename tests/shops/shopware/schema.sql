-- Shopware 6.6.7: the tables that a cancelled order touches, as its migrations leave them (https://github.com/shopware/shopware,
-- src/Core/Migration), without columns of products, and foreign keys, that matter to nothing here.

CREATE TABLE state_machine (
  id BINARY(16) NOT NULL,
  technical_name VARCHAR(255) COLLATE utf8mb4_unicode_ci NOT NULL,
  initial_state_id BINARY(16) NULL,
  created_at DATETIME(3) NOT NULL,
  updated_at DATETIME(3) NULL,
  PRIMARY KEY (id),
  UNIQUE `uniq.state_machine.technical_name` (technical_name)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_unicode_ci;

CREATE TABLE state_machine_state (
  id BINARY(16) NOT NULL,
  technical_name VARCHAR(255) COLLATE utf8mb4_unicode_ci NOT NULL,
  state_machine_id BINARY(16) NOT NULL,
  created_at DATETIME(3) NOT NULL,
  updated_at DATETIME(3) NULL,
  PRIMARY KEY (id),
  KEY `idx.state_machine_state.state_machine_id` (state_machine_id),
  UNIQUE `uniq.technical_name_state_machine` (technical_name, state_machine_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_unicode_ci;

CREATE TABLE state_machine_history (
  id BINARY(16) NOT NULL,
  state_machine_id BINARY(16) NOT NULL,
  entity_name VARCHAR(100) CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci NOT NULL,
  from_state_id BINARY(16) NOT NULL,
  to_state_id BINARY(16) NOT NULL,
  action_name VARCHAR(255) COLLATE utf8mb4_unicode_ci NOT NULL,
  user_id BINARY(16) NULL,
  created_at DATETIME(3) NOT NULL,
  updated_at DATETIME(3) NULL,
  referenced_id BINARY(16) NOT NULL,
  referenced_version_id BINARY(16) NOT NULL,
  PRIMARY KEY (id),
  KEY `idx.state_machine_history.referenced_entity` (referenced_id, referenced_version_id),
  CONSTRAINT `fk.state_machine_history.state_machine_id` FOREIGN KEY (state_machine_id) REFERENCES state_machine (id),
  CONSTRAINT `fk.state_machine_history.from_state_id` FOREIGN KEY (from_state_id) REFERENCES state_machine_state (id),
  CONSTRAINT `fk.state_machine_history.to_state_id` FOREIGN KEY (to_state_id) REFERENCES state_machine_state (id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_unicode_ci;

CREATE TABLE payment_method (
  id BINARY(16) NOT NULL,
  technical_name VARCHAR(255) NULL,
  active TINYINT(1) NOT NULL DEFAULT 0,
  created_at DATETIME(3) NOT NULL,
  updated_at DATETIME(3) NULL,
  PRIMARY KEY (id),
  UNIQUE `uniq.technical_name` (technical_name)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_unicode_ci;

CREATE TABLE product (
  id BINARY(16) NOT NULL,
  version_id BINARY(16) NOT NULL,
  auto_increment BIGINT unsigned NOT NULL AUTO_INCREMENT,
  product_number VARCHAR(64) NULL,
  parent_id BINARY(16) NULL,
  parent_version_id BINARY(16) NULL,
  stock INT(11) NULL,
  available_stock INT(11) NULL,
  available TINYINT(1) NOT NULL DEFAULT 0,
  sales INT(11) NOT NULL DEFAULT 0,
  is_closeout TINYINT(1) NULL,
  max_purchase INT(11) unsigned NULL,
  min_purchase INT(11) unsigned NULL,
  created_at DATETIME(3) NULL,
  updated_at DATETIME(3) NULL,
  PRIMARY KEY (id, version_id),
  KEY `idx.auto_increment` (auto_increment),
  CONSTRAINT `uniq.product.product_number__version_id` UNIQUE (product_number, version_id),
  CONSTRAINT `fk.product.parent_id` FOREIGN KEY (parent_id, parent_version_id) REFERENCES product (id, version_id) ON DELETE CASCADE ON UPDATE CASCADE
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_unicode_ci;

CREATE TABLE `order` (
  id BINARY(16) NOT NULL,
  version_id BINARY(16) NOT NULL,
  state_id BINARY(16) NOT NULL,
  auto_increment BIGINT unsigned NOT NULL AUTO_INCREMENT,
  order_number VARCHAR(64),
  currency_id BINARY(16) NOT NULL,
  language_id BINARY(16) NOT NULL,
  currency_factor DOUBLE NULL,
  sales_channel_id BINARY(16) NOT NULL,
  billing_address_id BINARY(16) NOT NULL,
  billing_address_version_id BINARY(16) NOT NULL,
  price JSON NOT NULL,
  order_date_time DATETIME(3) NOT NULL,
  order_date DATE GENERATED ALWAYS AS (CONVERT(order_date_time, DATE)) STORED,
  shipping_costs JSON NOT NULL,
  deep_link_code VARCHAR(32) NULL,
  custom_fields JSON NULL,
  affiliate_code VARCHAR(255) NULL,
  campaign_code VARCHAR(255) NULL,
  customer_comment LONGTEXT COLLATE utf8mb4_unicode_ci NULL,
  rule_ids JSON NULL,
  item_rounding JSON NULL,
  total_rounding JSON NULL,
  source VARCHAR(255) NULL,
  created_by_id BINARY(16) NULL,
  updated_by_id BINARY(16) NULL,
  created_at DATETIME(3) NOT NULL,
  updated_at DATETIME(3) NULL,
  PRIMARY KEY (id, version_id),
  INDEX `idx.state_index` (state_id),
  UNIQUE `uniq.auto_increment` (auto_increment),
  UNIQUE `uniq.deep_link_code` (deep_link_code, version_id),
  INDEX `idx.order_date_currency_id` (order_date, currency_id),
  INDEX `idx.order_number` (order_number),
  CONSTRAINT `char_length.order.deep_link_code` CHECK (CHAR_LENGTH(deep_link_code) = 32),
  CONSTRAINT `json.order.price` CHECK (JSON_VALID(price)),
  CONSTRAINT `json.order.shipping_costs` CHECK (JSON_VALID(shipping_costs)),
  CONSTRAINT `fk.order.state_id` FOREIGN KEY (state_id) REFERENCES state_machine_state (id) ON DELETE RESTRICT ON UPDATE CASCADE
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_unicode_ci;

CREATE TABLE order_line_item (
  id BINARY(16) NOT NULL,
  version_id BINARY(16) NOT NULL,
  order_id BINARY(16) NOT NULL,
  order_version_id BINARY(16) NOT NULL,
  parent_id BINARY(16) NULL,
  parent_version_id BINARY(16) NULL,
  identifier VARCHAR(255) COLLATE utf8mb4_unicode_ci NOT NULL,
  referenced_id VARCHAR(255) COLLATE utf8mb4_unicode_ci NULL,
  product_id BINARY(16) NULL,
  product_version_id BINARY(16) NULL,
  promotion_id BINARY(16) NULL,
  label VARCHAR(255) COLLATE utf8mb4_unicode_ci NOT NULL,
  quantity INT(11) NOT NULL,
  type VARCHAR(255) COLLATE utf8mb4_unicode_ci NULL,
  price JSON NOT NULL,
  position INT(11) NOT NULL DEFAULT 1,
  states JSON NOT NULL,
  created_at DATETIME(3) NOT NULL,
  updated_at DATETIME(3) NULL,
  PRIMARY KEY (id, version_id),
  CONSTRAINT `json.order_line_item.price` CHECK (JSON_VALID(price)),
  CONSTRAINT `fk.order_line_item.order_id` FOREIGN KEY (order_id, order_version_id) REFERENCES `order` (id, version_id) ON DELETE CASCADE ON UPDATE CASCADE
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_unicode_ci;

CREATE TABLE order_transaction (
  id BINARY(16) NOT NULL,
  version_id BINARY(16) NOT NULL,
  order_id BINARY(16) NOT NULL,
  order_version_id BINARY(16) NOT NULL,
  state_id BINARY(16) NOT NULL,
  payment_method_id BINARY(16) NOT NULL,
  amount JSON NOT NULL,
  validation_data JSON NULL,
  custom_fields JSON NULL,
  created_at DATETIME(3) NOT NULL,
  updated_at DATETIME(3) NULL,
  PRIMARY KEY (id, version_id),
  INDEX `idx.state_index` (state_id),
  CONSTRAINT `json.order_transaction.amount` CHECK (JSON_VALID(amount)),
  CONSTRAINT `fk.order_transaction.order_id` FOREIGN KEY (order_id, order_version_id) REFERENCES `order` (id, version_id) ON DELETE CASCADE ON UPDATE CASCADE,
  CONSTRAINT `fk.order_transaction.state_id` FOREIGN KEY (state_id) REFERENCES state_machine_state (id) ON DELETE RESTRICT ON UPDATE CASCADE,
  CONSTRAINT `fk.order_transaction.payment_method_id` FOREIGN KEY (payment_method_id) REFERENCES payment_method (id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_unicode_ci;

CREATE TABLE order_delivery (
  id BINARY(16) NOT NULL,
  version_id BINARY(16) NOT NULL,
  order_id BINARY(16) NOT NULL,
  order_version_id BINARY(16) NOT NULL,
  state_id BINARY(16) NOT NULL,
  created_at DATETIME(3) NOT NULL,
  updated_at DATETIME(3) NULL,
  PRIMARY KEY (id, version_id),
  INDEX `idx.state_index` (state_id),
  CONSTRAINT `fk.order_delivery.order_id` FOREIGN KEY (order_id, order_version_id) REFERENCES `order` (id, version_id) ON DELETE CASCADE ON UPDATE CASCADE
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_unicode_ci;
