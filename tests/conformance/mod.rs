//! The exam that every dialect sits, through the public trait alone.
//!
//! A case reads once, as a function of an empty database of any kind, and runs against each:
//! `conformance::postgres::integer_ids`, `conformance::mariadb::integer_ids`, ... A new backend is done when it passes.

mod altered;
mod at_once;
mod batches;
mod closing;
mod cut_off;
mod deadlines;
mod hosts;
mod identity;
mod ids;
mod keeping;
mod migrations;
mod misfits;
mod names;
mod neighbours;
mod outbox;
mod payloads;
mod plans;
mod poolers;
mod read_only;
mod rehearsal;
mod row_counts;
mod shares;
mod statuses;
mod sweeping;
mod texts;
mod transactions;
mod zones;

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use order_closer::{
    app::settings_of,
    config,
    order::{OrderId, Row, Verdict, judge},
    store::{self, DueQuery, Limits, OpenError, Store, StoreError, Transaction, Window},
};

use crate::support::{Database, Kind, Settings, process};

/// Makes tests of cases: each gets an empty database of this kind.
macro_rules! sit {
    ($kind:ident: $($room:ident::$case:ident),* $(,)?) => {
        $(
            #[tokio::test]
            async fn $case() {
                super::$room::$case(super::Database::fresh(super::Kind::$kind).await).await;
            }
        )*
    };
}

/// The cases for every database, and then those that only this one can sit.
macro_rules! exam {
    ($kind:ident: $($room:ident::$case:ident),* $(,)?) => {
        sit! { $kind:
            ids::integer_ids,
            ids::text_ids,
            ids::ids_that_look_alike,
            ids::ids_within_the_columns_length,
            identity::one_database_by_two_names,
            identity::two_databases,
            ids::more_ids_than_one_statement_holds,
            ids::no_ids_at_all,
            ids::two_rows_with_one_id,
            closing::a_payment_in_another_table,
            closing::a_payment_behind_a_closure,
            closing::a_trigger_that_keeps_the_status,
            statuses::integer_statuses,
            statuses::negative_statuses,
            statuses::statuses_that_look_alike,
            statuses::text_statuses,
            statuses::digits_as_text_statuses,
            statuses::a_null_status_is_not_unpaid,
            deadlines::deadline_with_a_zone,
            deadlines::deadline_without_a_zone,
            deadlines::deadline_without_a_zone_far_from_utc,
            deadlines::deadline_to_the_second,
            deadlines::deadline_in_epoch_seconds,
            deadlines::deadline_in_epoch_millis,
            deadlines::deadline_after_creation,
            deadlines::deadline_after_creation_as_a_number,
            deadlines::never_due,
            deadlines::never_due_as_a_number,
            sweeping::a_status_that_is_listed_twice,
            sweeping::pages_hold_every_order_once_oldest_first,
            sweeping::pages_of_text_ids,
            shares::orders_of_some_shares,
            sweeping::only_what_is_within_the_horizon,
            sweeping::only_what_is_in_the_window,
            sweeping::counts_what_is_overdue,
            sweeping::counts_what_falls_due_up_to_a_number,
            names::reserved_and_mixed_case_names,
            names::a_qualified_table,
            transactions::closes_and_sets_columns,
            transactions::closes_only_what_is_unpaid,
            transactions::a_filter_hides_rows,
            transactions::close_sql_runs_for_the_closed_orders,
            transactions::failing_close_sql_rejects,
            plans::closing_finds_orders_by_id,
            read_only::is_reached_while_it_is_locked,
            row_counts::a_statement_must_change_its_rows_for_each_order,
            row_counts::what_counts_as_a_changed_row,
            row_counts::a_rehearsal_finds_wrong_sql_in_a_counted_statement,
            transactions::a_constraint_rejects,
            transactions::a_dropped_transaction_leaves_nothing,
            transactions::a_rolled_back_transaction_leaves_nothing,
            transactions::waiting_for_a_lock_ends,
            rehearsal::a_rehearsal_leaves_nothing,
            rehearsal::a_rehearsal_finds_wrong_sql,
            rehearsal::a_rehearsal_on_an_order_finds_what_none_shows,
            migrations::tables_are_created_once,
            migrations::one_migrates_at_a_time,
            migrations::an_older_version_is_upgraded_with_its_data,
            migrations::tables_of_the_version_before,
            keeping::dead_letters_of_settled_orders_are_forgotten,
            keeping::dead_letters_of_hidden_orders_are_kept,
            keeping::dead_letters_of_undone_orders_with_another_deadline_are_forgotten,
            keeping::a_dead_letter_with_two_rows,
            keeping::old_events_are_pruned_as_fast_as_they_come,
            neighbours::dead_letters_are_their_own_tables,
            neighbours::events_are_their_own_tables,
            outbox::heartbeats_of_a_group,
            outbox::an_event_for_each_closure,
            outbox::events_with_much_to_carry,
            batches::a_crowd_is_recorded_in_a_batch,
            batches::what_comes_after_a_batch_is_told_after_it,
            batches::two_unpack_at_once,
            batches::without_their_table_rows_are_written,
            outbox::an_order_with_an_empty_id,
            outbox::an_event_carries_what_close_sql_moves,
            outbox::no_event_without_its_closure,
            outbox::no_closure_without_its_event,
            outbox::nothing_is_recorded_unless_asked_for,
            outbox::an_included_column_must_exist,
            payloads::whatever_the_columns_hold,
            payloads::a_payload_that_is_too_long,
            outbox::events_name_orders_exactly,
            outbox::events_are_read_in_pages_and_by_age,
            outbox::old_events_are_pruned_once_delivered,
            outbox::a_delivery_is_claimed_by_one_at_a_time,
            outbox::a_claim_ends_by_itself,
            outbox::a_failed_delivery_waits_or_dies,
            outbox::dead_orders_are_passed_over,
            misfits::no_such_table,
            misfits::no_such_column,
            misfits::a_word_for_a_numeric_status,
            misfits::a_number_for_a_text_status,
            misfits::an_integer_deadline_without_its_unit,
            misfits::close_sql_without_ids,
            $($room::$case),*
        }
    };
}

/// PostgreSQL.
mod postgres {
    exam! { Postgres:
        keeping::nothing_to_prune,
        payloads::a_column_that_the_server_cant_render,
        rehearsal::a_rehearsal_passes_over_a_held_order,
        rehearsal::a_rehearsal_runs_what_is_deferred,
        rehearsal::a_rehearsal_names_a_missing_partition,
        altered::the_ids_column_is_widened,
        at_once::closes_only_what_is_unpaid_and_due,
        at_once::closes_none_if_ids_may_repeat,
        at_once::closes_none_if_the_deadline_is_set,
        at_once::gives_up_at_a_locked_row,
        closing::a_payment_between_two_looks,
        closing::a_trigger_that_resets_the_status_afterwards,
        closing::a_trigger_of_a_partition_that_resets_the_status,
        closing::a_trigger_that_drops_the_update,
        closing::ids_of_a_type_that_folds_case,
        identity::a_postgres_that_hides_its_control_file,
        ids::a_locked_row_with_the_same_id,
        ids::ids_of_a_domain_over_a_domain,
        ids::uuid_ids,
        ids::ids_padded_by_the_column,
        statuses::enumerated_statuses,
        deadlines::deadline_in_the_servers_own_zone,
        deadlines::deadline_in_daylight_saving_time,
        deadlines::infinity_is_never_due,
        deadlines::a_lost_connection_does_not_hide_the_servers_zone,
        sweeping::a_page_ends_sooner_than_a_transaction,
        sweeping::reads_only_what_is_due,
        sweeping::reads_only_what_is_due_by_the_proposed_index,
        names::a_table_in_another_schema,
        names::a_partitioned_table,
        plans::a_look_up_reads_few_partitions,
        poolers::a_pooler_that_shares_sessions,
        poolers::a_pooler_that_does_not_know_the_driver,
        poolers::a_pooler_that_pools_by_session,
        read_only::a_postgres_that_became_read_only,
        hosts::the_one_that_answers,
        hosts::none_of_them,
        hosts::a_postgres_that_is_promoted,
        transactions::a_locked_row_is_skipped_and_peeked,
        transactions::two_closers_share_a_batch,
        transactions::a_killed_server_is_unavailable_until_it_returns,
        transactions::a_long_list_uses_the_index,
        misfits::a_table_of_another_case,
        misfits::a_time_with_a_unit,
        misfits::an_unknown_label,
        misfits::types_that_do_not_fit,
        misfits::numbers_that_may_have_a_fraction,
        misfits::an_unreachable_database,
        zones::a_zone_that_changes,
        zones::a_zone_that_does_not_matter,
        zones::closing_stops_while_the_zone_is_another,
        zones::a_zone_that_changed_meanwhile,
        zones::a_zone_that_changes_while_the_server_is_away,
    }
}

/// MariaDB.
mod mariadb {
    exam! { MariaDb:
        rehearsal::a_rehearsal_passes_over_a_held_order,
        rehearsal::no_rehearsal_beside_a_table_without_transactions,
        migrations::a_migration_is_taken_up_where_it_was_cut_off,
        migrations::a_database_named_with_a_quote,
        outbox::packets_of_a_megabyte,
        outbox::an_event_larger_than_a_packet,
        altered::the_ids_index_is_renamed,
        altered::a_packet_that_is_too_large,
        ids::a_locked_row_with_the_same_id,
        ids::uuid_ids,
        ids::ids_padded_by_the_column,
        ids::unsigned_ids,
        shares::unsigned_orders_of_some_shares,
        ids::ids_filled_with_zeros,
        statuses::enumerated_statuses,
        statuses::statuses_filled_with_zeros,
        statuses::statuses_of_bytes,
        misfits::bytes_that_do_not_fit,
        deadlines::deadline_in_the_servers_own_zone,
        deadlines::deadline_in_daylight_saving_time,
        deadlines::zero_dates_are_never_due,
        sweeping::a_page_ends_sooner_than_a_transaction,
        sweeping::reads_only_what_is_due,
        sweeping::reads_only_what_is_due_by_the_proposed_index,
        names::a_table_in_another_schema,
        names::a_partitioned_table,
        plans::a_look_up_reads_few_partitions,
        plans::claiming_finds_deliveries_by_their_events,
        read_only::a_mariadb_that_became_read_only,
        read_only::sessions_that_are_read_only,
        read_only::a_server_that_was_started_read_only,
        cut_off::whoever_is_led_elsewhere_ends_nothing_there,
        hosts::the_one_that_answers,
        hosts::none_of_them,
        hosts::a_mariadb_that_is_made_read_only,
        transactions::a_locked_row_is_skipped_and_peeked,
        transactions::two_closers_share_a_batch,
        transactions::a_killed_server_is_unavailable_until_it_returns,
        transactions::a_long_list_uses_the_index,
        misfits::a_table_of_another_case,
        misfits::a_time_with_a_unit,
        misfits::an_unknown_label,
        misfits::types_that_do_not_fit,
        misfits::an_engine_without_transactions,
        misfits::an_unreachable_database,
        zones::a_zone_that_changes,
        zones::a_zone_that_does_not_matter,
        zones::closing_stops_while_the_zone_is_another,
        zones::a_zone_that_changed_meanwhile,
        zones::a_zone_that_changes_while_the_server_is_away,
    }
}

/// SQLite.
mod sqlite {
    exam! { Sqlite:
        closing::a_trigger_that_drops_the_update,
        deadlines::deadline_in_iso_8601_with_t,
        misfits::numbers_that_may_have_a_fraction,
        misfits::texts_that_become_numbers,
        texts::a_zone_with_white_space_after_it,
        texts::deadlines_in_any_spelling,
    }
}

/// The text for this kind of database.
fn by_kind<'a>(kind: Kind, postgres: &'a str, mariadb: &'a str, sqlite: &'a str) -> &'a str {
    match kind {
        Kind::Postgres => postgres,
        Kind::MariaDb => mariadb,
        Kind::Sqlite => sqlite,
    }
}

/// A column type for a deadline that is simplest in this kind of database.
fn time_type(kind: Kind) -> &'static str {
    by_kind(kind, "timestamptz", "datetime(6)", "text")
}

/// A time of long ago, of today's calendar, and long hence, for that type.
const PAST: &str = "'2020-01-01 00:00:00'";
const FUTURE: &str = "'2035-01-01 00:00:00'";

/// `orders(order_no, status, expires_at, note)` with these types.
async fn create_orders(database: &Database, id: &str, status: &str, deadline: &str) {
    database
        .execute(&format!("CREATE TABLE orders (order_no {id} NOT NULL, status {status} NULL, expires_at {deadline} NULL, note text NULL)"))
        .await;
    database.execute("CREATE UNIQUE INDEX orders_id ON orders (order_no)").await;
    database.execute("CREATE INDEX orders_due ON orders (status, expires_at)").await;
}

/// The same with the types that matter least.
async fn plain_orders(database: &Database) {
    create_orders(database, "bigint", "integer", time_type(database.kind)).await;
}

/// Unpaid, overdue orders with these numbers.
async fn overdue_orders(database: &Database, numbers: impl IntoIterator<Item = i64>) {
    let rows: Vec<String> = numbers.into_iter().map(|number| format!("({number}, 0, {PAST})")).collect();
    database.execute(&format!("INSERT INTO orders (order_no, status, expires_at) VALUES {}", rows.join(", "))).await;
}

/// The mapping that all defaults make.
fn settings(database: &Database) -> Settings {
    Settings::new().set("database.url", database.url.as_str()).set("sweep.oldest", "none")
}

fn load(settings: &Settings) -> config::Config {
    let folder = process::folder();
    let file = folder.path().join("order-closer.toml");
    settings.write(&file);
    config::load(Some(&file)).unwrap_or_else(|error| panic!("{error}\n{}", settings.toml())).config
}

async fn try_open(settings: &Settings) -> Result<Arc<dyn Store>, OpenError> {
    store::open(settings_of(&load(settings))).await
}

async fn open(settings: &Settings) -> Arc<dyn Store> {
    try_open(settings).await.unwrap_or_else(|error| panic!("{error}\n{}", settings.toml()))
}

/// Reads ids as they would follow the prefix of a key.
fn ids<T: AsRef<str>>(store: &dyn Store, texts: &[T]) -> Vec<OrderId> {
    let parse = |text: &T| store.id_kind().parse(text.as_ref().as_bytes()).unwrap_or_else(|error| panic!("{:?} {error}", text.as_ref()));
    texts.iter().map(parse).collect()
}

async fn begin(store: &dyn Store) -> Box<dyn Transaction> {
    store.begin(Limits::BRIEF).await.expect("a transaction can begin")
}

/// Which of these orders can be locked, sorted.
async fn lockable(store: &dyn Store, texts: &[&str]) -> Vec<String> {
    let mut transaction = begin(store).await;
    let rows = transaction.lock(&ids(store, texts)).await.expect("rows can be locked");
    assert!(rows.iter().all(|row| row.locked), "a row that was locked must say so");
    transaction.rollback().await;
    sorted_ids(&rows)
}

fn sorted_ids(rows: &[Row]) -> Vec<String> {
    let mut ids: Vec<String> = rows.iter().map(|row| row.id.as_str().to_owned()).collect();
    ids.sort();
    ids
}

/// One order's row, locked.
async fn row(store: &dyn Store, id: &str) -> Option<Row> {
    let mut transaction = begin(store).await;
    let rows = transaction.lock(&ids(store, &[id])).await.expect("a row can be locked");
    transaction.rollback().await;
    assert!(rows.len() < 2, "two rows for {id}: {rows:?}");
    rows.into_iter().next()
}

/// What is to be done with one order. The one statement that closes whatever is due never closes another.
async fn verdict(store: &dyn Store, id: &str) -> Verdict {
    let closed_at_once = closed_at_once(store, &[id]).await;
    let verdict = judge(store.unpaid(), row(store, id).await.as_ref());
    assert!(closed_at_once.is_empty() || matches!(verdict, Verdict::Close { .. }), "{verdict:?}, but one statement would close it");
    verdict
}

/// Which of these orders are closed where one statement locks, judges and updates; it is rolled back.
async fn closed_at_once(store: &dyn Store, texts: &[&str]) -> Vec<String> {
    let mut transaction = begin(store).await;
    let rows = transaction.close_due(&ids(store, texts)).await.expect("orders can be closed");
    transaction.rollback().await;
    for row in &rows {
        assert!(matches!(judge(store.unpaid(), Some(row)), Verdict::Close { .. }), "{row:?}");
    }
    sorted_ids(&rows)
}

/// Closes orders whose rows are locked, and runs the user's statements; returns how many changed.
async fn change(transaction: &mut dyn Transaction, ids: &[OrderId]) -> Result<u64, StoreError> {
    let changed = transaction.update(ids).await?.changed;
    transaction.run_close_sql(ids).await?;
    Ok(changed)
}

/// Closes those of these orders that are to be closed; returns how many changed.
async fn close(store: &dyn Store, texts: &[&str]) -> u64 {
    let mut transaction = begin(store).await;
    let rows = transaction.lock(&ids(store, texts)).await.expect("rows can be locked");
    let due: Vec<OrderId> =
        rows.into_iter().filter(|row| matches!(judge(store.unpaid(), Some(row)), Verdict::Close { .. })).map(|row| row.id).collect();
    let changed = change(&mut *transaction, &due).await.expect("orders can be closed");
    transaction.commit().await.expect("a transaction can be committed");
    changed
}

/// All pages of the sweep: their rows, page by page.
async fn sweep(store: &dyn Store, ahead: Duration, limit: u32) -> Vec<Vec<Row>> {
    read(store, Window::until(ahead), limit).await
}

/// All pages of a window: their rows, page by page.
async fn read(store: &dyn Store, window: Window, limit: u32) -> Vec<Vec<Row>> {
    let mut pages = Vec::new();
    let mut after = None;
    loop {
        let page = store.due(&DueQuery { after, ..DueQuery::of(window, limit) }).await.expect("what is due can be read");
        pages.push(page.rows);
        assert!(pages.len() < 1_000, "the sweep does not end");
        match page.next {
            Some(next) => after = Some(next),
            None => return pages,
        }
    }
}

/// The ids that the sweep finds overdue, sorted.
async fn overdue(store: &dyn Store) -> Vec<String> {
    sorted_ids(&sweep(store, Duration::ZERO, 100).await.concat())
}

/// Each order's status, as text.
async fn status_of(database: &Database) -> BTreeMap<String, String> {
    let text = |text: Option<String>| text.unwrap_or_else(|| "NULL".into());
    let rows = database.rows("SELECT order_no, status FROM orders").await;
    rows.into_iter().map(|mut row| (text(row.swap_remove(0)), text(row.remove(0)))).collect()
}

/// A map of texts, for comparison with [`status_of`].
fn texts<const N: usize>(pairs: [(&str, &str); N]) -> BTreeMap<String, String> {
    pairs.map(|(key, value)| (key.into(), value.into())).into()
}

/// The clock of this host, which the servers share, in microseconds since 1970 UTC.
fn host_now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    i64::try_from(since.as_micros()).expect("before the year 292 million")
}
