-- Orders 1 to 3 are due; the others are young, paid, authorized, carts, cancelled and fulfilled. Of what is tracked, only order 2 has
-- some: how often a variant gets another version depends on how many transactions close the orders.
INSERT INTO sylius_product_variant (id, product_id, code, created_at, updated_at, position, enabled, version, on_hold, on_hand, tracked, shipping_required) VALUES
  (1, 1, 'shirt', '2026-01-01', '2026-01-01', 0, 1, 7, 20, 50, 1, 1), (2, 1, 'song', '2026-01-01', NULL, 0, 1, 1, 5, 0, 0, 0), (3, 1, 'shoes', '2026-01-01', NULL, 0, 1, 1, 3, 9, 1, 1),
  (4, 1, 'hat', '2026-01-01', NULL, 0, 1, 1, 2, 9, 1, 1);
INSERT INTO sylius_promotion (id, code, name, priority, exclusive, used, coupon_based, created_at) VALUES
  (1, 'spring', 'Spring', 0, 0, 9, 1, '2026-01-01'), (2, 'all', 'All', 0, 0, 9, 0, '2026-01-01'), (3, 'other', 'Other', 0, 0, 9, 0, '2026-01-01');
INSERT INTO sylius_promotion_coupon (id, promotion_id, code, used, created_at, reusable_from_cancelled_orders) VALUES
  (1, 1, 'SPRING', 6, '2026-01-01', 1), (2, 1, 'ONCE', 6, '2026-01-01', 0), (3, 1, 'OTHER', 6, '2026-01-01', 1);
INSERT INTO sylius_order (id, state, checkout_completed_at, promotion_coupon_id, payment_state, shipping_state, checkout_state,
                          items_total, adjustments_total, total, created_at, updated_at, currency_code, locale_code)
  SELECT id, state, NOW() - INTERVAL age HOUR, coupon, payment, shipping, checkout, 0, 0, 0, '2026-01-01', '2026-01-01', 'EUR', 'en' FROM (
    SELECT 1 AS id, 'new' AS state, 121 AS age, 1 AS coupon, 'awaiting_payment' AS payment, 'ready' AS shipping, 'completed' AS checkout
    UNION ALL SELECT 2, 'new', 200, 2, 'awaiting_payment', 'ready', 'completed'
    UNION ALL SELECT 3, 'new', 121, 1, 'awaiting_payment', 'shipped', 'completed'
    UNION ALL SELECT 4, 'new', 119, 1, 'awaiting_payment', 'ready', 'completed'
    UNION ALL SELECT 5, 'new', 200, 1, 'paid', 'ready', 'completed'
    UNION ALL SELECT 6, 'new', 200, 1, 'authorized', 'ready', 'completed'
    UNION ALL SELECT 7, 'cart', NULL, 1, 'cart', 'cart', 'addressed'
    UNION ALL SELECT 8, 'cancelled', 200, 1, 'cancelled', 'cancelled', 'completed'
    UNION ALL SELECT 9, 'fulfilled', 200, 1, 'paid', 'shipped', 'completed'
    UNION ALL SELECT 10, 'new', 200, 1, 'partially_paid', 'ready', 'completed') AS orders;
INSERT INTO sylius_order_item (id, order_id, variant_id, quantity, unit_price, units_total, adjustments_total, total, is_immutable)
  SELECT id * 10, id, IF(id IN (1, 3), 2, 1), 2, 0, 0, 0, 0, 0 FROM sylius_order;
INSERT INTO sylius_order_item (id, order_id, variant_id, quantity, unit_price, units_total, adjustments_total, total, is_immutable) VALUES
  (21, 2, 1, 1, 0, 0, 0, 0, 0), (22, 2, 2, 1, 0, 0, 0, 0, 0), (23, 2, 3, 3, 0, 0, 0, 0, 0);
INSERT INTO sylius_promotion_order (order_id, promotion_id) SELECT id, 1 FROM sylius_order;
INSERT INTO sylius_promotion_order (order_id, promotion_id) VALUES (2, 2), (5, 3);
INSERT INTO sylius_payment (id, order_id, currency_code, amount, state, details, created_at)
  SELECT id * 10, id, 'EUR', 100, IF(payment_state = 'paid', 'completed', 'new'), '{}', '2026-01-01' FROM sylius_order;
INSERT INTO sylius_payment (id, order_id, currency_code, amount, state, details, created_at) VALUES
  (21, 2, 'EUR', 100, 'failed', '{}', '2026-01-01'), (22, 2, 'EUR', 100, 'processing', '{}', '2026-01-01');
INSERT INTO sylius_shipment (id, method_id, order_id, state, created_at, adjustments_total)
  SELECT id * 10, 1, id, IF(shipping_state = 'shipped', 'shipped', 'ready'), '2026-01-01', 0 FROM sylius_order;
