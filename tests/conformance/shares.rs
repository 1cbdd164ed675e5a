//! Of some shares alone: what an instance reads ahead of a table whose orders it closes with others.

use order_closer::order::{OrderId, Shares};

use super::{Database, DueQuery, PAST, Store, Window, create_orders, open, settings, time_type};

/// Types of ids, and whether a database can tell their shares.
const WIDE: [(&str, bool); 3] = [("bigint", true), ("numeric(30)", false), ("varchar(40)", false)];
const NARROW: [(&str, bool); 2] = [("int", true), ("smallint", true)];

/// None of an instance's own orders is missing, page after page; and where ids are whole numbers, none of others is read.
pub async fn orders_of_some_shares(database: Database) {
    let many = || (0..50).map(|number| number * 631);
    let large = [i64::MAX, i64::MAX - 32, 1 << 61, (1 << 40) + 7, -1, -33, i64::MIN + 1];
    for (id_type, is_wide) in WIDE.map(|id_type| (id_type, true)).into_iter().chain(NARROW.map(|id_type| (id_type, false))) {
        let numbers = many().chain(large.into_iter().filter(|_| is_wide));
        reads_its_own(&database, id_type, numbers.map(|number| number.to_string())).await;
    }
}

/// The same of numbers that have no sign.
pub async fn unsigned_orders_of_some_shares(database: Database) {
    let numbers = ["0", "31", "32", "9223372036854775808", "18446744073709551615", "18446744073709551583"];
    reads_its_own(&database, ("bigint unsigned", true), numbers.into_iter().map(str::to_owned)).await;
    reads_its_own(&database, ("decimal(30) unsigned", false), numbers.into_iter().map(str::to_owned)).await;
}

async fn reads_its_own(database: &Database, (id_type, is_told): (&str, bool), numbers: impl Iterator<Item = String>) {
    create_orders(database, id_type, "integer", time_type(database.kind)).await;
    let all: Vec<String> = numbers.collect();
    let rows: Vec<String> = all.iter().map(|number| format!("('{number}', 0, {PAST}, NULL)")).collect();
    database.execute(&format!("INSERT INTO orders VALUES {}", rows.join(", "))).await;
    let store = open(&settings(database)).await;
    for some in 0..4 {
        let shares = (0..Shares::COUNT).filter(|share| share % 4 == some).fold(Shares::NONE, Shares::and);
        let is_ours = |id: &str| shares.have(&OrderId::from_database(id));
        let read = read(&*store, shares).await;
        let sorted = |ids: &mut dyn Iterator<Item = &String>| {
            let mut ids: Vec<String> = ids.cloned().collect();
            ids.sort();
            ids
        };
        assert_eq!(sorted(&mut read.iter().filter(|id| is_ours(id))), sorted(&mut all.iter().filter(|id| is_ours(id))), "{id_type}");
        let others = read.iter().filter(|id| !is_ours(id) && !id.starts_with('-')).count();
        assert!(if is_told { others == 0 } else { others > 0 }, "{id_type}: {others} of others");
    }
    store.close().await;
    database.execute("DROP TABLE orders").await;
}

async fn read(store: &dyn Store, shares: Shares) -> Vec<String> {
    let (mut ids, mut query) = (Vec::new(), DueQuery { shares, ..DueQuery::of(Window::overdue(None), 3) });
    loop {
        let page = store.due(&query).await.expect("what is due can be read");
        ids.extend(page.rows.iter().map(|row| row.id.as_str().to_owned()));
        match page.next {
            Some(next) => query.after = Some(next),
            None => return ids,
        }
    }
}
