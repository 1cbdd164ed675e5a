-- Orders 1 to 3 are due; the others are young, paid, in another state, with a pack, with a payment.
INSERT INTO ps_shop_group (id_shop_group, name, share_customer, share_order, share_stock) VALUES (1, 'Default', 0, 0, 0), (2, 'Shared', 1, 1, 1);
-- A shirt; shoes with two combinations; a song that depends on a warehouse; a set of two shirts; the shirt in a group that shares its stock.
INSERT INTO ps_stock_available (id_stock_available, id_product, id_product_attribute, id_shop, id_shop_group, quantity, physical_quantity, reserved_quantity, depends_on_stock) VALUES
  (1, 1, 0, 1, 0, 5, 25, 20, 0), (2, 2, 0, 1, 0, 7, 7, 0, 0), (3, 2, 42, 1, 0, 0, 4, 4, 0), (4, 2, 43, 1, 0, 7, 7, 0, 0), (5, 3, 0, 1, 0, 9, 10, 1, 1),
  (6, 4, 0, 1, 0, 3, 4, 1, 0), (7, 1, 0, 0, 2, 50, 50, 0, 0), (8, 1, 0, 2, 0, 1, 1, 0, 0);
INSERT INTO ps_pack VALUES (4, 1, 0, 2);
INSERT INTO ps_orders (id_order, reference, id_shop_group, id_shop, id_carrier, id_lang, id_customer, id_cart, id_currency, id_address_delivery, id_address_invoice,
                       current_state, payment, total_paid_real, valid, invoice_date, delivery_date, date_add, date_upd)
  SELECT id, CONCAT('REF', id), shop_group, shop, 1, 1, 1, 1, 1, 1, 1, state, 'Bank wire', paid, valid, '2026-01-01', '2026-01-01', NOW() - INTERVAL age HOUR, '2026-01-01' FROM (
    SELECT 1 AS id, 1 AS shop_group, 1 AS shop, 10 AS state, 121 AS age, 0 AS paid, 0 AS valid
    UNION ALL SELECT 2, 1, 1, 1, 300, 0, 0
    UNION ALL SELECT 3, 2, 3, 10, 121, 0, 0
    UNION ALL SELECT 4, 1, 1, 10, 119, 0, 0
    UNION ALL SELECT 5, 1, 1, 2, 300, 10, 1
    UNION ALL SELECT 6, 1, 1, 10, 300, 10, 0
    UNION ALL SELECT 7, 1, 1, 13, 300, 0, 0
    UNION ALL SELECT 8, 1, 1, 10, 300, 0, 0
    UNION ALL SELECT 9, 1, 1, 10, 300, 0, 0
    UNION ALL SELECT 10, 1, 1, 6, 300, 0, 0) AS orders;
INSERT INTO ps_order_payment (order_reference, id_currency, amount, payment_method, date_add) VALUES ('REF9', 1, 5, 'Bank wire', '2026-01-01');
INSERT INTO ps_order_detail (id_order_detail, id_order, id_shop, product_id, product_attribute_id, product_name, product_quantity, product_quantity_refunded, product_weight, tax_name)
  SELECT id_order * 10, id_order, id_shop, IF(id_order = 8, 4, 1), 0, 'A shirt', 2, 0, 0, '' FROM ps_orders;
INSERT INTO ps_order_detail (id_order_detail, id_order, id_shop, product_id, product_attribute_id, product_name, product_quantity, product_quantity_refunded, product_weight, tax_name) VALUES
  (21, 2, 1, 1, 0, 'A shirt with print', 1, 0, 0, ''), (22, 2, 1, 2, 42, 'Shoes, 42', 4, 1, 0, ''), (23, 2, 1, 3, 0, 'A song', 1, 0, 0, ''), (24, 2, 1, 99, 0, 'Gone', 1, 0, 0, '');
INSERT INTO ps_order_history (id_employee, id_order, id_order_state, date_add) SELECT 0, id_order, current_state, '2026-01-01' FROM ps_orders;
