//! macrozheng/mall: payment and receipt.

use super::{assert_changes, mall};

#[tokio::test]
async fn the_daemon_closes_and_receives_as_mall_does() {
    let example = mall::open_with("mall-all").await;
    // Number, status, deleted, days since it was sent, the order's own time.
    for (id, status, deleted, age, days) in [
        (21, 2, 0, "15.1", "15"),
        (22, 2, 0, "14.9", "15"),
        (23, 2, 0, "40", "7"),
        (24, 2, 0, "40", "NULL"),
        // Promised for longer than the rule has; not mall's to receive; done already; not sent.
        (25, 2, 0, "16", "20"),
        (26, 2, 1, "16", "15"),
        (27, 3, 0, "16", "15"),
        (28, 1, 0, "16", "15"),
    ] {
        let now = mall::NOW;
        example
            .database
            .execute(&format!(
                "INSERT INTO oms_order (id, member_id, status, delete_status, confirm_status, create_time, delivery_time, auto_confirm_day,
                                        receiver_name, receiver_phone)
                 VALUES ({id}, 1, {status}, {deleted}, 0, {now} - INTERVAL 60 DAY, {now} - INTERVAL {age} * 24 * 60 MINUTE, {days}, 'r', '1')"
            ))
            .await;
    }
    let left = "SELECT (SELECT COUNT(*) FROM oms_order WHERE id IN (1, 2, 3, 4) AND status = 0)
                     + (SELECT COUNT(*) FROM oms_order WHERE id IN (21, 23, 24) AND status = 2)";
    let mut expected = mall::CLOSED.to_vec();
    expected.extend([
        "oms_order 21: status 2 -> 3",
        "oms_order 21: confirm_status 0 -> 1",
        "oms_order 21: receive_time NULL -> now",
        "oms_order 23: status 2 -> 3",
        "oms_order 23: confirm_status 0 -> 1",
        "oms_order 23: receive_time NULL -> now",
        "oms_order 24: status 2 -> 3",
        "oms_order 24: confirm_status 0 -> 1",
        "oms_order 24: receive_time NULL -> now",
    ]);
    assert_changes(example.close(left).await, &expected);
}
