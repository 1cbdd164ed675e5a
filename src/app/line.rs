//! A rule's part of the daemon: from what falls due to its closure. Trouble of one rule stays in its line.

use std::sync::Arc;

use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, Span, error_span};

use super::{
    ZONE_EVERY,
    opening::{Opened, Shadowed},
    places::Shared,
    serving::{Parts, Serving},
};
use crate::{
    ask::{self, Ahead, Ask, Receiver},
    close::{Clearance, Clearances, Closer, Follow, Inbox, Outage, Registrar, Requests, Share, Stats, Worker},
    config::{Config, Live, Rule, Sweep as SweepSettings, Which},
    ops::Summaries,
    outbox::LatestPauses,
    redis::Commands,
    shadow::{Foreseen, Report, Watch},
    store::Store,
    trigger::{
        Board, Body, Claims, Hearing, Heart, Intake, KeyReader, Listening, LookAhead, Pacer, Passes, PauseWatch, Routes, Sweep, Taker,
        Takers, Turns, Witness, ZoneWatch,
    },
    watchdog::Watchdog,
};

/// How many pages of the look-ahead, or orders to be looked at again, may wait for the pacer.
const PAGES: usize = 8;
const LATER: usize = 65_536;

/// What all rules have in common.
#[derive(Debug)]
pub(super) struct Common {
    pub(super) commands: Commands,
    /// How the table is gone over.
    pub(super) sweep: Live<SweepSettings>,
    /// Whether there is a confirmed subscription.
    pub(super) subscribed: watch::Receiver<Hearing>,
    /// Changes when orders were closed.
    pub(super) closed: watch::Sender<()>,
    pub(super) watchdog: Watchdog,
    pub(super) stop: CancellationToken,
    /// Who tells what would have been closed, in a shadow.
    pub(super) report: Option<Report>,
}

/// What a line starts among.
#[derive(Debug)]
pub(super) struct Around<'d> {
    pub(super) common: &'d Common,
    /// What other lines beside the same tables of ours have read.
    pub(super) paused: &'d Arc<LatestPauses>,
    /// The shards of its rule, where it is one of them.
    pub(super) routes: Option<&'d Arc<Routes>>,
    pub(super) serving: Option<&'d Serving>,
}

/// A rule's part, running.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) store: Arc<dyn Store>,
    pub(super) inbox: Arc<Inbox>,
    /// Nothing where another shard of its rule has it.
    pub(super) listening: Option<Listening>,
    pub(super) summaries: Summaries,
    /// Changes the names of the targets in the configuration.
    pub(super) named: watch::Sender<Arc<[String]>>,
    /// Whoever is asked before its orders close.
    pub(super) receiver: Option<Receiver>,
    span: Span,
}

/// What a rule's lines of the log say of it: nothing where there is no other.
pub(super) fn span_of(config: &Config) -> Span {
    let Which { name, is_one_of_several, .. } = &config.which;
    match name.shard() {
        Some(shard) => error_span!("rule", rule = %name, shard),
        None if *is_one_of_several => error_span!("rule", rule = %name),
        None => Span::none(),
    }
}

impl Line {
    /// Starts every room of a rule.
    ///
    /// # Errors
    /// Says which file of its settings can't be used, and why.
    pub(super) fn start(
        opened: Opened,
        &Around { common, paused, routes, serving }: &Around<'_>,
        (workers, others): (&mut JoinSet<()>, &mut JoinSet<()>),
    ) -> Result<Self, String> {
        let Opened { config, store, place, shadow } = opened;
        let bounds = &place.bounds;
        let span = span_of(&config);
        let inside = span.clone();
        let _inside = inside.enter();
        let Common { commands, sweep: settings, subscribed, closed, watchdog, stop, report } = common;
        let rule = config.which.name.clone();
        let commands = commands.of(&config.redis.key_prefix);
        let inbox = Arc::new(Inbox::new(config.close.inbox, config.close.retry.clone()).of(&rule));
        let stats = Arc::new(Stats::of(&rule));
        let keys = KeyReader::new(config.redis.key_prefix.clone(), Arc::clone(&store));
        let is_shadow = shadow.is_some();
        let (peers, heartbeat) = place.membership(&rule);
        let outage = Arc::new(Outage::new(Arc::clone(&store)));
        let witness = Witness::of(&Rule::of(&config), &store, &commands);
        if let Some(witness) = &witness {
            witness.greet();
        }
        let (upcoming, upcoming_rx) = mpsc::channel(PAGES);
        let (later, later_rx) = mpsc::channel(LATER);
        let registrar = Registrar { store: Arc::clone(&store), inbox: Arc::clone(&inbox), later: later.clone(), sweep: settings.clone() };
        let (named, targets) = Live::new(config.events.target_names().into());
        let closer = Closer::within(Arc::clone(&store), Arc::clone(bounds));
        let pauses = PauseWatch::of(&store, stop).beside(paused);
        let gate = Arc::clone(&pauses.gate);
        let passed = match &witness {
            Some(witness) if is_shadow => Clearances::default().and(Some(Arc::new(Foreseen(Arc::clone(witness))))),
            Some(_) | None => Clearances::default().and(witness.clone()),
        };
        let asked = ask::Parts {
            rule: rule.clone(),
            store: Arc::clone(&store),
            inbox: Arc::clone(&inbox),
            bounds: Arc::clone(bounds),
            gate: Arc::clone(&gate),
            stats: Arc::clone(&stats),
            share: Arc::clone(&peers) as Arc<dyn Share>,
            before: Arc::new(passed.clone()),
        };
        // A shadow asks nobody: the question is about an order that will be closed.
        let settings_of_ask = config.close.ask.as_ref().filter(|_| !is_shadow);
        let receiver = settings_of_ask.map(|settings| Receiver::new(&rule, settings)).transpose()?;
        let ask = settings_of_ask.zip(receiver.as_ref()).map(|(settings, receiver)| Ask::new(settings, receiver, asked));
        let clearance: Arc<dyn Clearance> = Arc::new(passed.and(ask.clone()));
        let requests = Requests::new(Arc::clone(&gate), closer.clone(), Arc::clone(&clearance), Arc::clone(&stats), closed.clone());
        let worker = Worker {
            inbox: Arc::clone(&inbox),
            gate: Arc::clone(&gate),
            clearance,
            closer,
            batch_size: config.close.batch_size,
            share: Arc::clone(&peers) as Arc<dyn Share>,
            later,
            closed: closed.clone(),
            stats: Arc::clone(&stats),
            outage: Arc::clone(&outage),
            rejections: Arc::default(),
            follow: Follow::Daemon,
            stop: stop.clone(),
        };
        let turns = Arc::new(Turns::default());
        let passes = Arc::new(Passes::of(&rule));
        let look_ahead = LookAhead {
            store: Arc::clone(&store),
            inbox: Arc::clone(&inbox),
            witness,
            peers: Arc::clone(&peers),
            upcoming,
            settings: settings.clone(),
            passes: Arc::clone(&passes),
            turns: Arc::clone(&turns),
            beat: place.beat,
            stop: stop.clone(),
        };
        let sweep = Sweep {
            store: Arc::clone(&store),
            inbox: Arc::clone(&inbox),
            peers: Arc::clone(&peers),
            bounds: Arc::clone(bounds),
            settings: settings.clone(),
            passes: Arc::clone(&passes),
            turns,
            beat: place.beat,
            stop: stop.clone(),
        };
        let taker = Taker { inbox: Arc::clone(&inbox), peers: Arc::clone(&peers), stats: Arc::clone(&stats) };
        let (expected, takers) = match routes.map(|routes| (routes, routes.add(taker.clone()))) {
            None => (None, Some(Takers::Table(taker))),
            Some((routes, (expected, is_first))) => (Some(expected), is_first.then(|| Takers::Shards(Arc::clone(routes)))),
        };
        let listening = takers.map(|takers| Listening { keys: keys.clone(), takers });
        let pacer = Pacer::new(
            (upcoming_rx, later_rx),
            Arc::clone(&inbox),
            Arc::clone(&peers),
            // Without a subscription orders are offered at their deadlines, and no key is touched.
            (keys, Arc::new(commands.clone()), if is_shadow { watch::channel(Hearing::default()).1 } else { subscribed.clone() }),
            stop.clone(),
        )
        .with_foresight(ask.clone().map(|ask| Arc::new(Ahead(ask)) as _))
        .expecting(expected);
        worker.spawn(config.close.workers, watchdog, workers);
        let mut spawn = |part: futures::future::BoxFuture<'static, ()>| drop(others.spawn(part.in_current_span()));
        // A shadow closes nothing in any case, and says what would close.
        if !is_shadow {
            spawn(Box::pin(pauses.run()));
        }
        spawn(Box::pin(pacer.run()));
        if let Some(ask) = ask {
            spawn(Box::pin(ask.run(stop.clone())));
        }
        spawn(Box::pin(watchdog.watch("look-ahead", look_ahead.run())));
        spawn(Box::pin(watchdog.watch("sweep", sweep.run())));
        if let Some(key) = config.timers.intake.clone().filter(|_| rule.is_timers() && !is_shadow) {
            let commands = Commands::new(&config.redis).map_err(|error| error.to_string())?;
            spawn(Box::pin(Intake { commands, key, registrar: registrar.clone(), targets: targets.clone(), stop: stop.clone() }.run()));
        }
        spawn(Box::pin(Claims { store: Arc::clone(&store), stop: stop.clone() }.run()));
        spawn(Box::pin(ZoneWatch { store: Arc::clone(&store), every: ZONE_EVERY, stop: stop.clone() }.run()));
        match shadow.zip(report.clone()) {
            // It is no peer of those that close orders: it takes no share of theirs.
            Some((Shadowed { store: shadow, changes, past }, report)) => spawn(Box::pin(
                Watch {
                    ledger: report.add(&shadow),
                    shadow,
                    changes,
                    past,
                    inbox: Arc::clone(&inbox),
                    settings: settings.clone(),
                    report,
                    stop: stop.clone(),
                }
                .run(),
            )),
            None => {
                let body = Body {
                    rule: Rule::of(&config),
                    database: config.database.clone(),
                    store: Arc::clone(&store),
                    inbox: Arc::clone(&inbox),
                    stats: Arc::clone(&stats),
                    outage: Arc::clone(&outage),
                    gate: Arc::clone(&gate),
                    passes: Arc::clone(&passes),
                };
                let (board, pulse) = (Board::of(&commands, &store), Arc::clone(&place.pulse));
                match heartbeat {
                    None => spawn(Box::pin(Arc::clone(&peers).run(Heart::of(body, board, pulse, stop.clone())))),
                    Some(Shared { join, first }) => {
                        // The heart that takes it in beats as long as the daemon runs.
                        join.send(body).ok();
                        if let Some(bodies) = first {
                            let heart = Heart { board, pulse, bodies, stop: stop.clone() };
                            spawn(Box::pin(Arc::clone(&peers).run(heart).instrument(place.span())));
                        }
                    }
                }
            }
        }
        let summaries = Summaries {
            gate: Arc::clone(&gate),
            stats: Arc::clone(&stats),
            inbox: Arc::clone(&inbox),
            outage: Arc::clone(&outage),
            passes: Arc::clone(&passes),
            store: Arc::clone(&store),
            subscribed: subscribed.clone(),
            has_redis: !commands.is_absent(),
            is_shadow,
        };
        spawn(Box::pin(summaries.clone().run(config.log.summary.get(), stop.clone())));
        if let Some(serving) = serving {
            let parts = Parts {
                store: Arc::clone(&store),
                inbox: Arc::clone(&inbox),
                bounds: Arc::clone(bounds),
                outage,
                gate,
                passes,
                commands,
                peers,
                subscribed: subscribed.clone(),
                requests,
                stats: Arc::clone(&stats),
                sweep: settings.clone(),
                registrar,
                targets,
                is_shadow,
            };
            serving.add(&config, parts, stop, others);
        }
        Ok(Self { store, inbox, listening, summaries, named, receiver, span })
    }

    /// Takes no more orders in.
    pub(super) fn stop(&self) {
        self.inbox.close();
    }

    /// Sums up all since the start, and ends.
    pub(super) fn sum_up(&self) {
        self.span.in_scope(|| self.summaries.at_the_end());
    }
}
