//! The rooms of the library use each other in one direction.

use std::{fs, path::Path};

/// From the bottom up; a room uses those before it.
const ROOMS: [&str; 18] = [
    "metric", "watchdog", "order", "config", "webhook", "store", "redis", "outbox", "close", "ask", "trigger", "doors", "explain",
    "shadow", "ops", "http", "app", "cli",
];

fn sources(folder: &Path) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else {
            found.push((path.display().to_string(), fs::read_to_string(&path).unwrap()));
        }
    }
    found
}

/// The rooms that a source names, as `crate::room` or in a `use crate::{…}`; comments may name any.
fn used(text: &str) -> Vec<&'static str> {
    let text: String = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    let mut uses = Vec::new();
    for part in text.split("crate::").skip(1) {
        let named: String = match part.strip_prefix('{') {
            Some(list) => {
                // Only names at the list's own level are rooms.
                let mut depth = 0;
                list.chars()
                    .take_while(|c| {
                        depth += i32::from(*c == '{') - i32::from(*c == '}');
                        depth >= 0
                    })
                    .scan(0, |depth, c| {
                        *depth += i32::from(c == '{') - i32::from(c == '}');
                        Some(if *depth == 0 { c } else { ' ' })
                    })
                    .collect()
            }
            None => part.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect(),
        };
        for word in named.split(',') {
            let room = word.trim().split("::").next().unwrap_or_default();
            uses.extend(ROOMS.iter().filter(|known| **known == room));
        }
    }
    uses
}

#[test]
fn each_room_uses_only_those_below_it() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut links = 0;
    for (height, room) in ROOMS.iter().enumerate() {
        let own = source.join(format!("{room}.rs"));
        let mut files = vec![(own.display().to_string(), fs::read_to_string(&own).unwrap())];
        if source.join(room).is_dir() {
            files.extend(sources(&source.join(room)));
        }
        for (file, text) in files {
            for other in used(&text) {
                let below = ROOMS.iter().position(|name| *name == other).is_some_and(|at| at <= height);
                assert!(below, "{file} uses crate::{other}, which is above {room}");
                links += 1;
            }
        }
    }
    assert!(links > 50, "only {links} uses were seen; the reading of sources is broken");
}
