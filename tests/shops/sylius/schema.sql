-- Sylius 2.0: the tables that a cancelled order touches, as its migrations make them (https://github.com/Sylius/Sylius,
-- src/Sylius/Bundle/CoreBundle/Migrations), with the foreign keys between them.

CREATE TABLE sylius_product_variant (
  id INT AUTO_INCREMENT NOT NULL,
  product_id INT NOT NULL,
  tax_category_id INT DEFAULT NULL,
  shipping_category_id INT DEFAULT NULL,
  code VARCHAR(255) NOT NULL,
  created_at DATETIME NOT NULL,
  updated_at DATETIME DEFAULT NULL,
  position INT NOT NULL,
  enabled TINYINT(1) NOT NULL,
  version INT DEFAULT 1 NOT NULL,
  on_hold INT NOT NULL,
  on_hand INT NOT NULL,
  tracked TINYINT(1) NOT NULL,
  width DOUBLE PRECISION DEFAULT NULL,
  height DOUBLE PRECISION DEFAULT NULL,
  depth DOUBLE PRECISION DEFAULT NULL,
  weight DOUBLE PRECISION DEFAULT NULL,
  shipping_required TINYINT(1) NOT NULL,
  UNIQUE INDEX UNIQ_A29B52377153098 (code),
  INDEX IDX_A29B5234584665A (product_id),
  INDEX IDX_A29B5239DF894ED (tax_category_id),
  INDEX IDX_A29B5239E2D1A41 (shipping_category_id),
  PRIMARY KEY(id)
) DEFAULT CHARACTER SET utf8mb4 COLLATE `utf8mb4_unicode_ci` ENGINE = InnoDB;

CREATE TABLE sylius_promotion (
  id INT AUTO_INCREMENT NOT NULL,
  code VARCHAR(255) NOT NULL,
  name VARCHAR(255) NOT NULL,
  description VARCHAR(255) DEFAULT NULL,
  priority INT NOT NULL,
  exclusive TINYINT(1) NOT NULL,
  usage_limit INT DEFAULT NULL,
  used INT NOT NULL,
  coupon_based TINYINT(1) NOT NULL,
  starts_at DATETIME DEFAULT NULL,
  ends_at DATETIME DEFAULT NULL,
  applies_to_discounted TINYINT(1) DEFAULT 1 NOT NULL,
  archived_at DATETIME DEFAULT NULL,
  created_at DATETIME NOT NULL,
  updated_at DATETIME DEFAULT NULL,
  UNIQUE INDEX UNIQ_F157396377153098 (code),
  PRIMARY KEY(id)
) DEFAULT CHARACTER SET utf8mb4 COLLATE `utf8mb4_unicode_ci` ENGINE = InnoDB;

CREATE TABLE sylius_promotion_coupon (
  id INT AUTO_INCREMENT NOT NULL,
  promotion_id INT DEFAULT NULL,
  code VARCHAR(255) NOT NULL,
  usage_limit INT DEFAULT NULL,
  used INT NOT NULL,
  expires_at DATETIME DEFAULT NULL,
  created_at DATETIME NOT NULL,
  updated_at DATETIME DEFAULT NULL,
  per_customer_usage_limit INT DEFAULT NULL,
  reusable_from_cancelled_orders TINYINT(1) DEFAULT 1 NOT NULL,
  UNIQUE INDEX UNIQ_B04EBA8577153098 (code),
  INDEX IDX_B04EBA85139DF194 (promotion_id),
  PRIMARY KEY(id)
) DEFAULT CHARACTER SET utf8mb4 COLLATE `utf8mb4_unicode_ci` ENGINE = InnoDB;

CREATE TABLE sylius_order (
  id INT AUTO_INCREMENT NOT NULL,
  shipping_address_id INT DEFAULT NULL,
  billing_address_id INT DEFAULT NULL,
  channel_id INT DEFAULT NULL,
  promotion_coupon_id INT DEFAULT NULL,
  customer_id INT DEFAULT NULL,
  number VARCHAR(255) DEFAULT NULL,
  notes LONGTEXT DEFAULT NULL,
  state VARCHAR(255) NOT NULL,
  checkout_completed_at DATETIME DEFAULT NULL,
  items_total INT NOT NULL,
  adjustments_total INT NOT NULL,
  total INT NOT NULL,
  created_at DATETIME NOT NULL,
  updated_at DATETIME DEFAULT NULL,
  currency_code VARCHAR(3) NOT NULL,
  locale_code VARCHAR(255) NOT NULL,
  checkout_state VARCHAR(255) NOT NULL,
  payment_state VARCHAR(255) NOT NULL,
  shipping_state VARCHAR(255) NOT NULL,
  created_by_guest TINYINT(1) DEFAULT 1 NOT NULL,
  token_value VARCHAR(255) DEFAULT NULL,
  customer_ip VARCHAR(255) DEFAULT NULL,
  UNIQUE INDEX UNIQ_6196A1F996901F54 (number),
  UNIQUE INDEX UNIQ_6196A1F9BEA95C75 (token_value),
  UNIQUE INDEX UNIQ_6196A1F94D4CFF2B (shipping_address_id),
  UNIQUE INDEX UNIQ_6196A1F979D0C0E4 (billing_address_id),
  INDEX IDX_6196A1F972F5A1AA (channel_id),
  INDEX IDX_6196A1F917B24436 (promotion_coupon_id),
  INDEX IDX_6196A1F99395C3F3 (customer_id),
  INDEX IDX_6196A1F9A393D2FB43625D9F (state, updated_at),
  PRIMARY KEY(id)
) DEFAULT CHARACTER SET utf8mb4 COLLATE `utf8mb4_unicode_ci` ENGINE = InnoDB;

CREATE TABLE sylius_promotion_order (
  order_id INT NOT NULL,
  promotion_id INT NOT NULL,
  INDEX IDX_BF9CF6FB8D9F6D38 (order_id),
  INDEX IDX_BF9CF6FB139DF194 (promotion_id),
  PRIMARY KEY(order_id, promotion_id)
) DEFAULT CHARACTER SET utf8mb4 COLLATE `utf8mb4_unicode_ci` ENGINE = InnoDB;

CREATE TABLE sylius_order_item (
  id INT AUTO_INCREMENT NOT NULL,
  order_id INT NOT NULL,
  variant_id INT NOT NULL,
  quantity INT NOT NULL,
  unit_price INT NOT NULL,
  original_unit_price INT DEFAULT NULL,
  units_total INT NOT NULL,
  adjustments_total INT NOT NULL,
  total INT NOT NULL,
  is_immutable TINYINT(1) NOT NULL,
  product_name VARCHAR(255) DEFAULT NULL,
  variant_name VARCHAR(255) DEFAULT NULL,
  version INT DEFAULT 1 NOT NULL,
  INDEX IDX_77B587ED8D9F6D38 (order_id),
  INDEX IDX_77B587ED3B69A9AF (variant_id),
  PRIMARY KEY(id)
) DEFAULT CHARACTER SET utf8mb4 COLLATE `utf8mb4_unicode_ci` ENGINE = InnoDB;

CREATE TABLE sylius_payment (
  id INT AUTO_INCREMENT NOT NULL,
  method_id INT DEFAULT NULL,
  order_id INT NOT NULL,
  currency_code VARCHAR(3) NOT NULL,
  amount INT NOT NULL,
  state VARCHAR(255) NOT NULL,
  details JSON NOT NULL,
  created_at DATETIME NOT NULL,
  updated_at DATETIME DEFAULT NULL,
  INDEX IDX_D9191BD419883967 (method_id),
  INDEX IDX_D9191BD48D9F6D38 (order_id),
  PRIMARY KEY(id)
) DEFAULT CHARACTER SET utf8mb4 COLLATE `utf8mb4_unicode_ci` ENGINE = InnoDB;

CREATE TABLE sylius_shipment (
  id INT AUTO_INCREMENT NOT NULL,
  method_id INT NOT NULL,
  order_id INT NOT NULL,
  state VARCHAR(255) NOT NULL,
  tracking VARCHAR(255) DEFAULT NULL,
  created_at DATETIME NOT NULL,
  updated_at DATETIME DEFAULT NULL,
  shipped_at DATETIME DEFAULT NULL,
  adjustments_total INT NOT NULL,
  INDEX IDX_FD707B3319883967 (method_id),
  INDEX IDX_FD707B338D9F6D38 (order_id),
  PRIMARY KEY(id)
) DEFAULT CHARACTER SET utf8mb4 COLLATE `utf8mb4_unicode_ci` ENGINE = InnoDB;

ALTER TABLE sylius_order ADD CONSTRAINT FK_6196A1F917B24436 FOREIGN KEY (promotion_coupon_id) REFERENCES sylius_promotion_coupon (id);
ALTER TABLE sylius_promotion_order ADD CONSTRAINT FK_BF9CF6FB8D9F6D38 FOREIGN KEY (order_id) REFERENCES sylius_order (id) ON DELETE CASCADE;
ALTER TABLE sylius_promotion_order ADD CONSTRAINT FK_BF9CF6FB139DF194 FOREIGN KEY (promotion_id) REFERENCES sylius_promotion (id);
ALTER TABLE sylius_order_item ADD CONSTRAINT FK_77B587ED8D9F6D38 FOREIGN KEY (order_id) REFERENCES sylius_order (id) ON DELETE CASCADE;
ALTER TABLE sylius_order_item ADD CONSTRAINT FK_77B587ED3B69A9AF FOREIGN KEY (variant_id) REFERENCES sylius_product_variant (id);
ALTER TABLE sylius_payment ADD CONSTRAINT FK_D9191BD48D9F6D38 FOREIGN KEY (order_id) REFERENCES sylius_order (id) ON DELETE CASCADE;
ALTER TABLE sylius_promotion_coupon ADD CONSTRAINT FK_B04EBA85139DF194 FOREIGN KEY (promotion_id) REFERENCES sylius_promotion (id);
ALTER TABLE sylius_shipment ADD CONSTRAINT FK_FD707B338D9F6D38 FOREIGN KEY (order_id) REFERENCES sylius_order (id) ON DELETE CASCADE;
