//! What no single value of the configuration can check for itself.

use std::collections::HashSet;

use super::{Ask, Config, Loaded, Rule, Span, Stream, Webhook, load::source_of, rules};

/// PostgreSQL and SQLite count a statement's time in milliseconds, in 31 bits: 24 days.
const LONGEST_STATEMENT: Span = Span::from_secs(86_400);

/// How many connections are the fewest: each rule has one of its own, and the others are for whoever needs them.
pub(super) fn fewest_connections(rules: usize) -> usize {
    rules.max(1) + 4
}

impl Loaded {
    /// Checks what no single value can check for itself.
    pub(super) fn validate(&self) -> Result<(), String> {
        self.refuse_misplaced_secrets()?;
        self.validate_places()?;
        self.config.refuse_overlaps().map_err(|(rule, what)| {
            // What is missing was set nowhere; the rule was.
            let place = source_of(&self.figment, &format!("{}.{rule}.key_prefix", rules::RULES));
            format!("{}.{rule}.orders.filter {what} (set in {place})", rules::RULES)
        })?;
        self.config.of_rules().iter().try_for_each(|config| self.validate_rule(config))?;
        let Config { database, sweep, events, shutdown, log, .. } = &self.config;
        self.within("events.retry.attempts", events.retry.attempts as usize, 1, 1_000)?;
        self.within("sweep.page", sweep.page as usize, 10, 100_000)?;
        let of_database = |key: &str| format!("{}.{key}", if self.config.databases.are_none() { "database" } else { "databases" });
        // Of shards none has a connection of its own.
        let rules = if self.config.is_sharded() { self.config.of_rules().len() } else { self.config.rule_names().len() };
        self.within(&of_database("connections"), database.connections, fewest_connections(rules), 1_000)
            .map_err(|message| if rules > 1 { format!("{message}; each rule has one of its own, and four are shared") } else { message })?;
        for (key, span) in [
            ("sweep.every", sweep.every),
            (&of_database("timeout"), database.timeout),
            ("shutdown.timeout", shutdown.timeout),
            ("events.keep", events.keep),
            ("events.retry.initial", events.retry.initial),
            ("events.retry.max", events.retry.max),
            ("log.summary", log.summary),
        ] {
            self.longer_than_nothing(key, span)?;
        }
        if database.timeout > LONGEST_STATEMENT {
            return Err(self.wrong(&of_database("timeout"), &format!("is {}, and must be at most 1 day", database.timeout)));
        }
        self.validate_timers()?;
        self.validate_webhooks()?;
        self.validate_hints()?;
        self.validate_stream("events.stream", events.stream.as_ref(), "orders:closed")?;
        self.validate_stream("timers.stream", self.config.timers.stream.as_ref(), "timers:fired")
    }

    fn validate_timers(&self) -> Result<(), String> {
        let Config { timers, orders, .. } = &self.config;
        if timers.enabled && timers.targets().next().is_none() {
            let what = "is true, and no timer could have a target; write a [[timers.webhooks]], or [timers.stream]";
            return Err(self.wrong("timers.enabled", what));
        }
        if let Some(intake) = &timers.intake {
            if self.config.redis.url.is_none() {
                let what = "names a stream in Redis, and there is no Redis: redis.url is \"none\"; take it out, or set redis.url";
                return Err(self.wrong("timers.intake", what));
            }
            if intake.is_empty() {
                return Err(self.wrong("timers.intake", "is empty; write a key such as \"order-closer:timers\", or \"none\""));
            }
        }
        if self.config.rule_names().is_empty() {
            let what =
                format!("is \"{}\", and timers.enabled is false: there is nothing to do; name the table, or enable timers", orders.table);
            return Err(self.wrong("orders.table", &what));
        }
        Ok(())
    }

    fn validate_stream(&self, list: &str, stream: Option<&Stream>, example: &str) -> Result<(), String> {
        let Some(stream) = stream else { return Ok(()) };
        let (key, max_len) = (format!("{list}.key"), format!("{list}.max_len"));
        if self.config.redis.url.is_none() {
            let what = "names a stream in Redis, and there is no Redis: redis.url is \"none\"; take out the stream, or set redis.url";
            return Err(self.wrong(&key, what));
        }
        if stream.key.is_empty() {
            return Err(self.wrong(&key, &format!("is empty; write a key such as \"{example}\"")));
        }
        if stream.max_len == 0 {
            return Err(self.wrong(&max_len, "is 0; the stream would hold nothing"));
        }
        Ok(())
    }

    /// The same of what each rule has of its own.
    fn validate_rule(&self, config: &Config) -> Result<(), String> {
        let Config { close, orders, which, .. } = config;
        let key = |key: &str| if self.config.rules.is_empty() { key.to_owned() } else { format!("{}.{}.{key}", rules::RULES, which.name) };
        self.within(&key("close.batch_size"), close.batch_size, 1, 5_000)?;
        self.within(&key("close.workers"), close.workers, 1, 64)?;
        self.within(&key("close.inbox"), close.inbox, close.batch_size, 10_000_000)?;
        self.within(&key("close.retry.attempts"), close.retry.attempts as usize, 1, 1_000)?;
        close.ask.iter().try_for_each(|ask| self.validate_ask(ask, key))?;
        self.longer_than_nothing(&key("close.retry.initial"), close.retry.initial)?;
        self.longer_than_nothing(&key("close.retry.max"), close.retry.max)?;
        if orders.unpaid.get().contains(&orders.closed) {
            let what = format!("is {}, which orders.unpaid lists as unpaid", orders.closed.text());
            return Err(self.wrong(&key("orders.closed"), &what));
        }
        let rule = Rule::of(config);
        if rule.sets(&rule.status) {
            let what = format!("sets {}, the status column, which orders.closed sets already", orders.status);
            return Err(self.wrong(&key("orders.set"), &what));
        }
        if rule.sets(&rule.id) {
            let what = format!("sets {}, the id column, by which what follows finds the order", orders.id);
            return Err(self.wrong(&key("orders.set"), &what));
        }
        Ok(())
    }

    /// Where the orders of each rule are.
    fn validate_places(&self) -> Result<(), String> {
        if self.config.is_sharded() {
            let lacks = |what: &str| format!("{what} not together with orders in several tables or databases (orders.table)");
            if self.config.timers.enabled {
                return Err(self.wrong("timers.enabled", &lacks("is true, and timers are")));
            }
            if !self.config.hints.is_empty() {
                return Err(self.wrong("hints", &lacks("has doors, and they are")));
            }
        }
        for config in self.config.of_rules() {
            let name = &config.which.name;
            let key = |key: &str| if self.config.rules.is_empty() { key.to_owned() } else { format!("{}.{name}.{key}", rules::RULES) };
            let table = &config.orders.table;
            config.shards_of(table).map_err(|what| self.wrong(&key("orders.table"), &format!("{:?} {what}", table.to_string())))?;
            config.refuse_unknown_part().map_err(|what| self.wrong(&key("close.sql"), &what))?;
        }
        Ok(())
    }

    fn within(&self, key: &str, value: usize, min: usize, max: usize) -> Result<(), String> {
        if (min..=max).contains(&value) {
            return Ok(());
        }
        Err(self.wrong(key, &format!("is {value}, and must be from {min} to {max}")))
    }

    fn longer_than_nothing(&self, key: &str, span: Span) -> Result<(), String> {
        if span.get().is_zero() { Err(self.wrong(key, "is 0s, and must be longer")) } else { Ok(()) }
    }

    fn validate_webhooks(&self) -> Result<(), String> {
        let mut names = HashSet::new();
        let Config { events, timers, .. } = &self.config;
        let all = events.webhooks.iter().map(|webhook| ("events.webhooks", webhook));
        let all = all.chain(timers.webhooks.iter().map(|webhook| ("timers.webhooks", webhook)));
        for (list, Webhook { name, secrets, secret_files, timeout, concurrency, .. }) in all {
            let wrong = |what: &str| Err(self.wrong(list, &format!("has an entry {name}, whose {what}")));
            if !names.insert(name) {
                return wrong("name another one has, too");
            }
            if secrets.is_empty() && secret_files.is_empty() {
                return wrong("secrets are missing; write secrets = [\"whsec_...\"], or secret_files");
            }
            if !(1..=256).contains(concurrency) {
                return wrong("concurrency must be from 1 to 256");
            }
            if timeout.get().is_zero() {
                return wrong("timeout is 0s, and must be longer");
            }
        }
        Ok(())
    }

    /// Whoever a rule asks before it closes; `key` names its settings.
    fn validate_ask(&self, ask: &Ask, key: impl Fn(&str) -> String) -> Result<(), String> {
        let Ask { secrets, secret_files, timeout, ahead, batch, concurrency, max_wait, .. } = ask;
        if secrets.is_empty() && secret_files.is_empty() {
            return Err(self.wrong(&key("close.ask"), "has no secrets; write secrets = [\"whsec_...\"], or secret_files"));
        }
        self.within(&key("close.ask.batch"), *batch, 1, 1_000)?;
        self.within(&key("close.ask.concurrency"), *concurrency, 1, 64)?;
        self.longer_than_nothing(&key("close.ask.timeout"), *timeout)?;
        self.longer_than_nothing(&key("close.ask.max_wait"), *max_wait)?;
        let seen = self.config.sweep.ahead;
        if *ahead > seen {
            let what = format!("is {ahead}, and orders are seen no more than sweep.ahead before, {seen}");
            return Err(self.wrong(&key("close.ask.ahead"), &what));
        }
        Ok(())
    }
}
