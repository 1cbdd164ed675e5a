//! Doors in the configuration: what is wrong with one is said with its name, and `check` tries each.

use crate::support::{Kind, Redis, Settings, Shop, order_closer};

fn door(text: &str) -> Settings {
    Settings::new().add(&format!("[[hints]]\nname = 'due'\n{text}"))
}

#[tokio::test]
async fn what_is_wrong_with_a_door_is_said() {
    let stream = "from = 'redis-stream'\nkey = 'k'";
    let two = format!("{stream}\n[[hints]]\nname = 'other'\n{stream}");
    let alike = format!("{stream}\n[[hints]]\nname = 'due'\nfrom = 'redis-zset'\nkey = 'k'");
    let password = "S3cret";
    let with_password = format!("from = 'amqp'\nqueue = 'q'\nurl = 'http://shop:{password}@h'");
    let misplaced = format!("from = 'amqp'\nqueue = 'amqp://shop:{password}@h'\nurl = 'amqp://h'");
    for (text, words) in [
        ("from = 'redis-streams'\nkey = 'k'", vec!["hints, entry 1", "redis-stream or redis-zset or amqp"]),
        ("from = 'redis-stream'", vec!["has an entry due", "key is missing", "orders:due"]),
        ("from = 'redis-stream'\nkey = ''", vec!["key is empty"]),
        ("from = 'redis-stream'\nkey = 'k'\nqueue = 'q'", vec!["queue does not belong to from = \"redis-stream\"", "group"]),
        ("from = 'redis-zset'\nkey = 'k'\nunit = 'm'", vec!["hints, entry 1"]),
        ("from = 'redis-zset'\nkey = 'k'\nlease = '10ms'", vec!["lease must be 1s"]),
        ("from = 'redis-stream'\nkey = 'k'\nprefetch = 0", vec!["prefetch must be from 1 to 10000"]),
        ("from = 'redis-stream'\nkey = 'k'\nrule = 'card'", vec!["rule is card", "write one of orders"]),
        ("from = 'amqp'\nurl = 'amqp://h'", vec!["queue is missing"]),
        ("from = 'amqp'\nqueue = 'q'", vec!["url is missing", "url_file"]),
        ("from = 'amqp'\nqueue = 'q'\nurl = 'amqp://h'\nurl_file = '/f'", vec!["both set"]),
        ("from = 'amqp'\nqueue = 'q'\nurl = 'amqp://h/a/b'", vec!["%2F"]),
        ("from = 'amqp'\nqueue = 'q'\nurl = 'amqp://h'\nid = 'order'", vec!["JSON pointer"]),
        (&two, vec!["has an entry other", "another one takes, too", "the stream k in the group order-closer"]),
        (&alike, vec!["name another one has"]),
        (&with_password, vec!["amqp:// or amqps://"]),
        (&misplaced, vec!["a URL, which does not belong there"]),
    ] {
        let refused = order_closer(&door(text), &["config"]).await.expect_code(78).stderr;
        assert!(words.iter().all(|word| refused.contains(word)) && !refused.contains(password), "{text}\n{refused}");
    }
    let nowhere = door(stream).set("redis.url", "none");
    let refused = order_closer(&nowhere, &["config"]).await.expect_code(78).stderr;
    assert!(refused.contains("there is no Redis"), "{refused}");
    // What is right is shown, without its password.
    let url = format!("from = 'amqp'\nqueue = 'q'\nurl = 'amqps://shop:{password}@broker/vhost'\nid = '/order/id'");
    let shown = order_closer(&door(&url), &["config"]).await.expect_code(0).stdout;
    assert!(shown.contains("amqps://shop:***@broker/vhost") && !shown.contains(password), "{shown}");
}

#[tokio::test]
async fn check_tries_each_door() {
    let redis = Redis::options().with_notifications().start();
    let shop = Shop::open(Kind::Sqlite).await;
    let doors = "[[hints]]\nname = 'due'\nfrom = 'redis-stream'\nkey = 'orders:due'\n\
        [[hints]]\nname = 'delayed'\nfrom = 'redis-zset'\nkey = 'orders:delayed'";
    let settings = shop.settings_with(&redis).add(doors);
    let checked = order_closer(&settings, &["check"]).await.expect_code(0).stdout;
    assert!(checked.contains("due: the stream orders:due in the group order-closer; it is not there yet"), "{checked}");
    assert!(checked.contains("delayed: the sorted set orders:delayed"), "{checked}");
    // It changes nothing.
    assert_eq!(redis.command(&["EXISTS", "orders:due", "orders:delayed"]).integer(), 0);
    redis.command(&["SET", "orders:delayed", "mine"]);
    let rights = ["ACL", "SETUSER", "closer", "on", ">pw", "~*", "&*", "+@all", "-xautoclaim", "-xack"];
    redis.command(&rights);
    let checked = order_closer(&settings.set("redis.url", redis.url_as("closer", "pw")), &["check"]).await.expect_code(78).stdout;
    assert!(checked.contains("due: the stream orders:due in the group order-closer: the ACL user lacks +xautoclaim +xack"), "{checked}");
    assert!(checked.contains("delayed: the sorted set orders:delayed: WRONGTYPE"), "{checked}");
}
