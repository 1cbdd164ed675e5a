//! What tables, columns and statuses are called: the only place where `init` guesses, and always as a proposal.
//!
//! Names are compared in small letters with underscores, so `createTime` and `CREATE_TIME` are `create_time`. In each list what
//! stands first is proposed first. The names come from the schemas of the shops in `config/examples` (their heads name the
//! files), of PrestaShop (`date_add`), OpenCart (`date_added`), Shopware (`order_date_time`), Medusa (`canceled_at`), Vendure
//! (`orderPlacedAt`), Sylius (`checkout_completed_at`), Odoo (`date_order`), ecshop and shopxo (`order_sn`, `add_time`), from
//! what Rails, Laravel and TypeORM (`created_at`), Hibernate and MyBatis-Plus generators (`create_time`, `gmt_create`), and Django
//! (`created`) write, and from the states of the payment interfaces of Alipay (`WAIT_BUYER_PAY`, `TRADE_CLOSED`), WeChat
//! Pay (`NOTPAY`) and Stripe (`requires_payment_method`, `canceled`).

/// What stands before a table's name by convention.
const TABLE_PREFIXES: [&str; 8] = ["t_", "tb_", "tbl_", "sys_", "app_", "shop_", "store_", "mall_"];

/// Words that make a table one about orders, and not the one of the orders.
const ABOUT_ORDERS: [&str; 46] = [
    "item",
    "items",
    "line",
    "lines",
    "detail",
    "details",
    "log",
    "logs",
    "history",
    "histories",
    "event",
    "events",
    "status",
    "statuses",
    "state",
    "address",
    "addresses",
    "setting",
    "settings",
    "return",
    "returns",
    "refund",
    "refunds",
    "coupon",
    "coupons",
    "goods",
    "product",
    "products",
    "payment",
    "payments",
    "note",
    "notes",
    "comment",
    "comments",
    "meta",
    "tag",
    "tags",
    "type",
    "types",
    "grid",
    "archive",
    "stats",
    "extension",
    "reason",
    "tax",
    "discount",
];

/// The name of the orders table.
const TABLES: [&str; 7] = ["orders", "order", "sales_order", "trade_order", "customer_order", "purchase_order", "booking"];

/// Columns with the moment at which an unpaid order is to be closed.
pub(super) const DEADLINES: &[&str] = &[
    "expires_at",
    "expire_at",
    "expire_time",
    "expires",
    "expiry",
    "expiration",
    "expiration_time",
    "expiration_date",
    "expires_on",
    "payment_deadline",
    "pay_deadline",
    "payment_due_at",
    "payment_expires_at",
    "payment_expire_time",
    "pay_expire_time",
    "pay_expires_at",
    "pay_end_time",
    "pay_timeout",
    "deadline",
    "due_at",
    "valid_until",
    "reserved_until",
    "hold_until",
    "lock_expires_at",
    "timeout_at",
    "time_expire",
    "auto_close_time",
    "auto_cancel_time",
    "cancel_deadline",
];

/// Columns with the moment at which an order was placed.
pub(super) const CREATED: &[&str] = &[
    "created_at",
    "create_time",
    "created_time",
    "created",
    "gmt_create",
    "gmt_created",
    "create_at",
    "createtime",
    "create_date",
    "created_on",
    "created_date",
    "date_created",
    "creation_time",
    "add_time",
    "added_at",
    "date_add",
    "date_added",
    "placed_at",
    "order_placed_at",
    "ordered_at",
    "order_time",
    "order_date_time",
    "order_date",
    "date_order",
    "checkout_completed_at",
    "completed_at",
    "inserted_at",
    "insert_time",
    "submit_time",
    "ctime",
    "dateline",
];

/// Columns with the status.
pub(super) const STATUSES: &[&str] = &[
    "status",
    "order_status",
    "state",
    "order_state",
    "trade_status",
    "trade_state",
    "status_code",
    "payment_status",
    "payment_state",
    "pay_status",
    "status_id",
    "state_id",
];

/// Columns by which an order service calls an order, where they are unique.
pub(super) const IDS: &[&str] =
    &["order_no", "order_sn", "order_number", "order_id", "order_code", "number", "reference", "code", "out_trade_no", "uuid"];

/// Columns that mark a row as deleted, though it is there.
pub(super) const DELETED: &[&str] =
    &["deleted", "is_deleted", "delete_status", "is_delete", "del_flag", "delete_flag", "is_del", "deleted_at", "delete_time"];

/// Statuses of an order that waits for its payment, in small letters without spaces and the like.
const UNPAID: &[&str] = &[
    "unpaid",
    "pendingpayment",
    "paymentpending",
    "awaitingpayment",
    "waitingpayment",
    "waitingforpayment",
    "waitbuyerpay",
    "waitpay",
    "topay",
    "notpay",
    "notpaid",
    "requirespaymentmethod",
    "balancedue",
    "pending",
    "wcpending",
    "unconfirmed",
    "待付款",
    "待支付",
    "未付款",
    "未支付",
    "等待付款",
    "等待支付",
    "等待买家付款",
    "未払い",
    "支払い待ち",
    "결제대기",
    "입금대기",
    "unbezahlt",
    "offen",
    "zahlungausstehend",
    "enattentedepaiement",
    "impayé",
    "enattente",
    "pendientedepago",
    "nopagado",
    "pendiente",
    "aguardandopagamento",
    "pendente",
    "inattesadipagamento",
    "неоплачен",
    "ожидаетоплаты",
    "new",
    "created",
    "placed",
    "open",
];

/// Statuses of an order that was closed because it was not paid, likewise.
const CLOSED: &[&str] = &[
    "expired",
    "timeout",
    "timedout",
    "paymenttimeout",
    "tradeclosed",
    "closed",
    "cancelled",
    "canceled",
    "wccancelled",
    "autocancelled",
    "systemcancelled",
    "已关闭",
    "交易关闭",
    "已取消",
    "超时取消",
    "系统取消",
    "自动取消",
    "订单关闭",
    "取消",
    "关闭",
    "キャンセル",
    "취소",
    "storniert",
    "abgelaufen",
    "annulé",
    "annulée",
    "expiré",
    "cancelado",
    "cancelada",
    "anulado",
    "annullato",
    "отменён",
    "отменен",
    "истёк",
    "void",
    "voided",
    "failed",
];

/// A name as it is compared: `createTime`, `CREATE_TIME` and `Create-Time` are `create_time`.
pub(super) fn plain(name: &str) -> String {
    let mut plain = String::with_capacity(name.len() + 4);
    let mut lower_before = false;
    for c in name.chars() {
        if c.is_uppercase() && lower_before {
            plain.push('_');
        }
        lower_before = c.is_lowercase() || c.is_ascii_digit();
        plain.extend(if c.is_alphanumeric() { c } else { '_' }.to_lowercase());
    }
    plain
}

/// The place of a name in a list of names, the first being 0.
pub(super) fn place(name: &str, list: &[&str]) -> Option<usize> {
    let plain = plain(name);
    list.iter().position(|known| *known == plain)
}

/// How likely a table has the orders, by its name and what its author says of it: 0 if not at all.
pub(super) fn table(name: &str, comment: &str) -> usize {
    let plain = plain(name);
    let bare = TABLE_PREFIXES.iter().find_map(|prefix| plain.strip_prefix(prefix)).unwrap_or(&plain);
    let words: Vec<&str> = bare.split('_').collect();
    if let Some(place) = TABLES.iter().position(|known| *known == bare) {
        return 100 - place;
    }
    let after = words.iter().rposition(|word| ["order", "orders"].contains(word)).map(|at| &words[at + 1..]);
    let is_about = words.iter().any(|word| ABOUT_ORDERS.contains(word));
    match after {
        Some([]) if !is_about => 85,
        Some(_) if !is_about => 60,
        _ if comment.contains("订单表") || comment.contains("订单主表") => 80,
        Some(_) | None => 0,
    }
}

/// Which of these are statuses of an order that waits for its payment: the likeliest first.
pub(super) fn unpaid<'t>(statuses: impl Iterator<Item = (&'t str, &'t str)>) -> Vec<&'t str> {
    likely(statuses, UNPAID)
}

/// Which of these closing might set: the likeliest first.
pub(super) fn closed<'t>(statuses: impl Iterator<Item = (&'t str, &'t str)>) -> Vec<&'t str> {
    likely(statuses, CLOSED)
}

/// Values with what they are called, by the place of that in a list.
fn likely<'t>(statuses: impl Iterator<Item = (&'t str, &'t str)>, list: &[&str]) -> Vec<&'t str> {
    let bare = |text: &str| text.to_lowercase().chars().filter(|c| c.is_alphanumeric()).collect::<String>();
    let place = |(value, label): (&'t str, &'t str)| {
        let texts = [bare(value), bare(label)];
        let at = list.iter().position(|known| texts.iter().any(|text| text == known));
        at.map(|at| (at, value))
    };
    let mut found: Vec<(usize, &str)> = statuses.filter_map(place).collect();
    found.sort_by_key(|(at, _)| *at);
    found.into_iter().map(|(_, value)| value).collect()
}

/// What an author's comment says of numbers: of `订单状态：0->待付款；1->待发货` that 0 is 待付款.
pub(super) fn labels(comment: &str) -> Vec<(String, String)> {
    let mut labels: Vec<(String, String)> = Vec::new();
    let mut number = String::new();
    for c in comment.chars() {
        if c.is_ascii_digit() {
            number.push(c);
            continue;
        }
        if !number.is_empty() {
            labels.push((std::mem::take(&mut number), String::new()));
        }
        if let Some((_, label)) = labels.last_mut() {
            label.push(c);
        }
    }
    let outside = |c: char| !c.is_alphanumeric();
    // Up to the mark after which something else is said.
    let first = |label: &str| {
        label
            .trim_matches(outside)
            .split([',', ';', '，', '；', '、', '|', '。', '(', '（', '\n'])
            .next()
            .map(|label| label.trim_matches(outside).to_owned())
    };
    labels.into_iter().filter_map(|(number, label)| Some((number, first(&label).filter(|label| !label.is_empty())?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_compared_whatever_their_case() {
        for name in ["createTime", "CREATE_TIME", "create_time", "CreateTime", "create-time"] {
            assert_eq!(plain(name), "create_time");
        }
    }

    #[test]
    fn a_table_about_orders_is_not_that_of_the_orders() {
        for name in [
            "orders",
            "t_order",
            "tb_order",
            "Order",
            "oms_order",
            "litemall_order",
            "wp_wc_orders",
            "Orders",
            "shop_orders",
            "eb_store_order",
        ] {
            assert!(table(name, "") > 0, "{name}");
        }
        for name in [
            "order_items",
            "orderItem",
            "oms_order_return_apply_reason",
            "border",
            "order_status",
            "sales_order_grid",
            "customers",
            "order_log",
        ] {
            assert_eq!(table(name, ""), 0, "{name}");
        }
        assert!(table("t_dd", "商城订单表") > 0);
        assert!(table("orders", "") > table("oms_order", ""));
    }

    #[test]
    fn what_a_comment_says_of_numbers_is_read() {
        let read =
            |comment: &str| labels(comment).into_iter().map(|(number, label)| format!("{number}={label}")).collect::<Vec<_>>().join(" ");
        assert_eq!(
            read("订单状态：0->待付款；1->待发货；2->已发货；4->已关闭；5->无效订单"),
            "0=待付款 1=待发货 2=已发货 4=已关闭 5=无效订单"
        );
        assert_eq!(read("0 unpaid, 1 paid, 4 closed"), "0=unpaid 1=paid 4=closed");
        assert_eq!(read("状态(10:待支付 20:已支付)"), "10=待支付 20=已支付");
        assert_eq!(read("0: waiting for payment (30 min), 9 - cancelled"), "0=waiting for payment 30=min 9=cancelled");
        assert_eq!(read("the order's status"), "");
    }

    #[test]
    fn statuses_are_known_in_several_languages() {
        let list = |statuses: [(&'static str, &'static str); 3]| statuses.into_iter();
        for statuses in
            [[("0", "待付款"), ("1", "已付款"), ("4", "已关闭")], [("0", "Waiting for payment"), ("1", "Paid"), ("4", "Cancelled")]]
        {
            assert_eq!(unpaid(list(statuses)), ["0"]);
            assert_eq!(closed(list(statuses)), ["4"]);
        }
        let words = [("PENDING", ""), ("PENDING_PAYMENT", ""), ("CANCELLED", "")];
        assert_eq!(unpaid(list(words)), ["PENDING_PAYMENT", "PENDING"]);
        assert_eq!(closed(list(words)), ["CANCELLED"]);
    }
}
