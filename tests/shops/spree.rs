//! Spree Commerce.

use super::{Example, assert_changes};
use crate::support::{Database, Kind};

/// An order with one shipment of one variant and one payment.
struct Order {
    id: i64,
    state: &'static str,
    payment_state: &'static str,
    /// Of its payment: the method and the state.
    payment: (i64, &'static str),
    /// Since it was placed; `NULL` for a cart.
    days: &'static str,
    variant: i64,
    unit: &'static str,
}

const BANK: i64 = 1;
const ON_DELIVERY: i64 = 2;
const CARD: i64 = 3;

impl Order {
    /// One that is due.
    fn new(id: i64) -> Self {
        Self { id, state: "complete", payment_state: "balance_due", payment: (BANK, "checkout"), days: "3.01", variant: 1, unit: "on_hand" }
    }

    async fn place(self, database: &Database) {
        let Self { id, state, payment_state, payment: (method, payment), days, variant, unit } = self;
        let paid = if payment == "completed" { 9 } else { 0 };
        database
            .execute(&format!(
                "INSERT INTO spree_orders (id, number, state, status, user_id, total, payment_total, completed_at, payment_state, shipment_state,
                                           created_at, updated_at)
                   VALUES ({id}, 'R{id}', '{state}', 'placed', 7, 9, {paid}, now() - interval '1 day' * {days}, '{payment_state}',
                           '{shipment}', now(), '2026-01-01');
                 INSERT INTO spree_shipments (id, order_id, state, stock_location_id, created_at, updated_at)
                   VALUES ({id}, {id}, 'pending', 1, now(), '2026-01-01');
                 INSERT INTO spree_line_items (id, order_id, variant_id, quantity, price, created_at, updated_at)
                   VALUES ({id}, {id}, {variant}, 2, 4.5, now(), '2026-01-01');
                 INSERT INTO spree_inventory_units (order_id, shipment_id, line_item_id, variant_id, state, quantity, pending, created_at, updated_at)
                   VALUES ({id}, {id}, {id}, {variant}, '{unit}', 2, false, now(), '2026-01-01');
                 INSERT INTO spree_payments (id, order_id, payment_method_id, state, amount, created_at, updated_at)
                   VALUES ({id}, {id}, {method}, '{payment}', 9, now(), '2026-01-01')",
                shipment = if unit == "backordered" { "backorder" } else { "pending" },
            ))
            .await;
    }
}

async fn open() -> Example {
    let example =
        Example::open("spree", Database::fresh(Kind::Postgres).await, "now() AT TIME ZONE 'UTC'", include_str!("spree.sql")).await;
    example
        .database
        .execute(
            "INSERT INTO spree_products (id, created_at, updated_at) SELECT n, now(), '2026-01-01' FROM generate_series(1, 5) n;
             INSERT INTO spree_variants (id, product_id, track_inventory, created_at, updated_at)
               SELECT n, n, n <> 2, now(), '2026-01-01' FROM generate_series(1, 5) n;
             INSERT INTO spree_taxonomies (id, name, created_at, updated_at)
               VALUES (1, 'Categories', now(), '2026-01-01'), (2, 'Brands', now(), '2026-01-01');
             INSERT INTO spree_taxons (id, parent_id, name, taxonomy_id, lft, rgt, created_at, updated_at)
               VALUES (1, NULL, 'Categories', 1, 1, 6, now(), '2026-01-01'), (2, 1, 'Shirts', 1, 2, 3, now(), '2026-01-01'),
                      (3, 1, 'Shoes', 1, 4, 5, now(), '2026-01-01'), (4, NULL, 'Brands', 2, 7, 8, now(), '2026-01-01');
             INSERT INTO spree_products_taxons (product_id, taxon_id) VALUES (1, 2), (2, 3), (3, 4);
             INSERT INTO spree_stock_items (id, stock_location_id, variant_id, count_on_hand, created_at, updated_at, deleted_at)
               VALUES (1, 1, 1, 10, now(), '2026-01-01', NULL), (2, 1, 2, 0, now(), '2026-01-01', NULL), (3, 1, 3, 0, now(), '2026-01-01', NULL),
                      (4, 1, 4, 5, now(), '2026-01-01', now()), (5, 2, 1, 4, now(), '2026-01-01', NULL);
             INSERT INTO spree_payment_methods (id, type, name, created_at, updated_at)
               VALUES (1, 'Spree::PaymentMethod::Check', 'Bank transfer', now(), now()),
                      (2, 'Spree::PaymentMethod::Check', 'Cash on delivery', now(), now()),
                      (3, 'SpreeStripe::Gateway', 'Card', now(), now())",
        )
        .await;
    example
}

#[tokio::test]
async fn cancels_as_spree_does() {
    let example = open().await;
    let database = &example.database;
    for order in [
        Order::new(1),
        // Its variant's stock is not tracked.
        Order { variant: 2, payment: (BANK, "pending"), ..Order::new(2) },
        Order { days: "2.99", ..Order::new(3) },
        Order { payment_state: "paid", payment: (BANK, "completed"), ..Order::new(4) },
        Order { payment: (ON_DELIVERY, "checkout"), ..Order::new(5) },
        Order { payment: (CARD, "pending"), ..Order::new(6) },
        Order { state: "canceled", ..Order::new(7) },
        Order { unit: "backordered", variant: 3, ..Order::new(8) },
        // Order 8 waits for what this one would return.
        Order { variant: 3, ..Order::new(9) },
        // Its stock item is deleted.
        Order { variant: 4, ..Order::new(10) },
        // A cart, which waits for the variant of order 1 in vain.
        Order { state: "payment", days: "NULL", unit: "backordered", ..Order::new(11) },
        // Canceled once and resumed, with a new bank payment.
        Order { state: "resumed", ..Order::new(12) },
        Order::new(13),
    ] {
        order.place(database).await;
    }
    database
        .execute(
            "INSERT INTO spree_payments (id, order_id, payment_method_id, state, amount, created_at, updated_at)
               VALUES (100, 1, 3, 'failed', 9, now(), '2026-01-01');
             INSERT INTO spree_payments (id, order_id, payment_method_id, state, response_code, amount, created_at, updated_at)
               VALUES (101, 13, 3, 'failed', 'pi_1', 9, now(), '2026-01-01');
             INSERT INTO spree_inventory_units (order_id, shipment_id, line_item_id, variant_id, state, quantity, pending, created_at, updated_at)
               VALUES (1, 1, 999, 1, 'on_hand', 7, false, now(), '2026-01-01')",
        )
        .await;
    let changed = |what: &str| format!("{what}: updated_at 2026-01-01 00:00:00 -> now");
    let mut expected = vec![
        "spree_stock_items 1: count_on_hand 10 -> 12".to_owned(),
        changed("spree_stock_items 1"),
        changed("spree_variants 1"),
        changed("spree_products 1"),
        changed("spree_taxons 1"),
        changed("spree_taxons 2"),
        changed("spree_taxonomies 1"),
    ];
    for (id, payment) in [(1, "checkout"), (2, "pending")] {
        expected.extend([
            format!("spree_orders {id}: canceled_at NULL -> now"),
            format!("spree_orders {id}: payment_state balance_due -> failed"),
            format!("spree_orders {id}: shipment_state pending -> canceled"),
            format!("spree_orders {id}: state complete -> canceled"),
            format!("spree_orders {id}: status placed -> canceled"),
            changed(&format!("spree_orders {id}")),
            format!("spree_payments {id}: state {payment} -> void"),
            changed(&format!("spree_payments {id}")),
            format!("spree_shipments {id}: state pending -> canceled"),
            changed(&format!("spree_shipments {id}")),
            format!(
                "+ spree_order_cancellations: created_at=now metadata={{}} notify_customer=f order_id={id} reason=expired refund_payments=f restock_items=f updated_at=now"
            ),
            format!(
                "+ spree_stock_movements: created_at=now originator_id={id} originator_type=Spree::Shipment quantity=2 stock_item_id={id} updated_at=now"
            ),
        ]);
        let mut change = |name: &str, from: &str, to: &str, of: &str, user: &str| {
            expected.push(format!(
                "+ spree_state_changes: created_at=now name={name} next_state={to} previous_state={from} stateful_id={id} stateful_type={of} updated_at=now{user}"
            ));
        };
        change("order", "complete", "canceled", "Spree::Order", " user_id=7");
        change("payment", "balance_due", "failed", "Spree::Order", " user_id=7");
        change("shipment", "pending", "canceled", "Spree::Order", " user_id=7");
        change("shipment", "pending", "canceled", "Spree::Shipment", "");
        change("payment", payment, "void", "Spree::Payment", "");
    }
    let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
    assert_changes(example.reconcile((2, 1)).await, &expected);
}

/// A card is authorized while the order is being closed: its authorization stays, for it can be voided at the gateway alone.
#[tokio::test]
async fn a_card_is_never_voided() {
    let example = open().await;
    Order::new(1).place(&example.database).await;
    example
        .database
        .execute(
            "CREATE FUNCTION pay_by_card() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
             BEGIN
               INSERT INTO spree_payments (id, order_id, payment_method_id, state, response_code, amount, created_at, updated_at)
                 VALUES (100, NEW.order_id, 3, 'pending', 'pi_1', 9, now(), now());
               RETURN NEW;
             END $$;
             CREATE TRIGGER pay_by_card AFTER INSERT ON spree_order_cancellations
               FOR EACH ROW EXECUTE FUNCTION pay_by_card()",
        )
        .await;
    example.reconcile((1, 0)).await;
    let payments = example.database.column("SELECT state FROM spree_payments ORDER BY id").await;
    assert_eq!(payments, [Some("void".into()), Some("pending".into())]);
    let changes = "SELECT count(*) FROM spree_state_changes WHERE stateful_type = 'Spree::Payment' AND stateful_id = 100";
    assert_eq!(example.database.number(changes).await, 0);
}
