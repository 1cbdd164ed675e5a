//! What `check` examines of whoever is asked before closing: it is asked about no order.

use crate::{
    ask,
    cli::check::{Examination, Finding},
    config::{Config, Unanswered},
};

const NAME: &str = "ask";

pub(super) async fn examine(config: &Config) -> Examination {
    let mut examination = Examination::default();
    let Some(settings) = &config.close.ask else { return examination };
    let answered = match ask::Trial::new(&config.which.name, settings) {
        Ok(trial) => trial.ask().await,
        Err(reason) => {
            examination.add(Finding::fail(NAME, reason, "fix close.ask"));
            return examination;
        }
    };
    match answered {
        Ok(took) if settings.url.is_readable() => {
            let found = format!("{} answers within {took:.0?}; what is said there can be read on its way", settings.url);
            examination.add(Finding::warn(NAME, found, "use https://"));
        }
        Ok(took) => examination.add(Finding::ok(NAME, format!("{} answers a question about no order within {took:.0?}", settings.url))),
        Err(reason) => {
            let what = match settings.unanswered {
                Unanswered::Wait => "no order closes".to_owned(),
                Unanswered::Close => format!("orders close {} late", settings.max_wait),
            };
            let fix = "let it answer 200 and {\"orders\": {}} to a question about no order (docs/ask.md)";
            examination.unavailable(Finding::fail(NAME, format!("{}: {reason}; without answers {what}", settings.url), fix));
        }
    }
    examination
}
