//! What is said of orders, and of timers, which are armed and fire.

use crate::config::Rule;

/// The words for what a rule looks after.
#[derive(Debug)]
pub(super) struct Words {
    /// What it is.
    pub(super) thing: &'static str,
    /// What is done with it when it is due.
    pub(super) closes: &'static str,
    pub(super) closed: &'static str,
    pub(super) closing: &'static str,
    /// That, once.
    pub(super) closure: &'static str,
    /// When it is due.
    pub(super) deadline: &'static str,
    /// What is done so that it is due once more.
    pub(super) opened: &'static str,
    /// What a command needs to know besides its id.
    pub(super) option: &'static str,
}

const ORDERS: Words = Words {
    thing: "Order",
    closes: "closes",
    closed: "closed",
    closing: "closing",
    closure: "closure",
    deadline: "deadline",
    opened: "opened",
    option: "",
};

const TIMERS: Words = Words {
    thing: "Timer",
    closes: "fires",
    closed: "fired",
    closing: "firing",
    closure: "firing",
    deadline: "time",
    opened: "armed",
    option: " --rule timers",
};

impl Words {
    pub(super) fn of(rule: &Rule) -> &'static Self {
        if rule.name.is_timers() { &TIMERS } else { &ORDERS }
    }
}
