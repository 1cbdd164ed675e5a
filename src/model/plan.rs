//! What a seed says: how many daemons and orders there are, and what goes wrong.

use std::time::Duration;

use rand::{Rng, SeedableRng, rngs::StdRng};

/// What happens in a schedule, besides orders that fall due. Each schedule has some: what takes one kind often would seldom come
/// up among all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Orders are paid, mostly at their deadlines, or cancelled.
    Payments,
    /// Orders get another deadline, and closed ones are opened again.
    Extensions,
    /// Keys that outlive their rows' deadlines by more than a minute.
    Disputes,
    /// Notifications are lost, late, repeated, forged.
    Hints,
    /// Redis is away, does not answer, comes back empty.
    Redis,
    /// Statements take long.
    Slow,
    /// Statements fail, and the database goes away.
    Failing,
    /// The answers to commits are lost, or the commits.
    Commits,
    /// Other transactions hold rows of orders, and of the stock, for long.
    Held,
    /// Orders whose closures the database refuses.
    Poison,
    /// Daemons are killed, stopped, started.
    Peers,
    /// Daemons stand still.
    Frozen,
    /// Heartbeats are lost.
    Unseen,
    /// The database's clock goes faster or slower than the daemons', and is set.
    Clock,
    /// Whoever is asked hangs, is late, fails, answers nonsense.
    Receiver,
    /// Closing is paused.
    Pauses,
    /// Whoever is told of closures hangs, is late, fails, wants to be left alone.
    Told,
    /// And takes no event of some orders.
    Refusals,
}

impl Kind {
    const ALL: [Self; 18] = [
        Self::Payments,
        Self::Extensions,
        Self::Disputes,
        Self::Hints,
        Self::Redis,
        Self::Slow,
        Self::Failing,
        Self::Commits,
        Self::Held,
        Self::Poison,
        Self::Peers,
        Self::Frozen,
        Self::Unseen,
        Self::Clock,
        Self::Receiver,
        Self::Pauses,
        Self::Told,
        Self::Refusals,
    ];

    /// Those that make no order late that needs nothing of what is broken.
    pub(super) const DELAYS_NOBODY: [Self; 8] =
        [Self::Payments, Self::Extensions, Self::Disputes, Self::Hints, Self::Redis, Self::Unseen, Self::Told, Self::Refusals];
}

/// What a seed says.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) kinds: Vec<Kind>,
    pub(super) daemons: u32,
    pub(super) orders: u32,
    /// For how long orders come and things go wrong.
    pub(super) active: Duration,
    /// How far the look-ahead sees.
    pub(super) ahead: Duration,
    /// Whether the database can tell of which share an order is.
    pub(super) tells_shares: bool,
    /// How long before the deadline somebody is asked, where somebody is.
    pub(super) ask: Option<Duration>,
    /// Whether the database closes by one statement.
    pub(super) fused: bool,
    pub(super) workers: usize,
    pub(super) batch: usize,
    /// How long a statement's way to the database and back takes at the most.
    pub(super) way: Duration,
    /// How much the clocks of the database and of Redis are ahead of the host's, in microseconds.
    pub(super) database_ahead: i64,
    pub(super) redis_ahead: i64,
    /// How much faster the database's clock goes than the host's, in parts of a million.
    pub(super) drift: i64,
}

impl Plan {
    pub(super) fn of(seed: u64) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let kinds: Vec<Kind> = Kind::ALL
            .into_iter()
            .filter(|kind| {
                let likely = if *kind == Kind::Payments { 0.8 } else { 0.2 };
                random.random_bool(likely)
            })
            .collect();
        let is_clock = kinds.contains(&Kind::Clock);
        Self {
            daemons: random.random_range(1..=3),
            orders: random.random_range(3..=24),
            active: Duration::from_millis(random.random_range(1_000..5_000)),
            ahead: Duration::from_millis(if random.random_bool(0.8) { 2_000 } else { 0 }),
            ask: random.random_bool(0.3).then(|| Duration::from_millis([0, 300, 1_000][random.random_range(0..3)])),
            fused: random.random_bool(0.5),
            workers: random.random_range(1..=3),
            batch: [1, 4, 100][random.random_range(0..3)],
            way: Duration::from_millis(random.random_range(1..=3)),
            database_ahead: random.random_range(-3_000_000..3_000_000),
            redis_ahead: random.random_range(-400_000..400_000),
            drift: if is_clock { random.random_range(-300..=300) } else { 0 },
            kinds,
            tells_shares: random.random_bool(0.5),
        }
    }

    /// Nothing goes wrong, and no orders come by themselves.
    pub(super) fn quiet(ahead: Duration) -> Self {
        Self {
            kinds: Vec::new(),
            daemons: 1,
            orders: 0,
            active: Duration::ZERO,
            ahead,
            tells_shares: true,
            ask: None,
            fused: true,
            workers: 2,
            batch: 100,
            way: Duration::from_millis(1),
            database_ahead: 0,
            redis_ahead: 0,
            drift: 0,
        }
    }

    /// Nothing goes wrong but that daemons come and go.
    pub(super) fn with_deaths_alone(self) -> Self {
        Self { kinds: vec![Kind::Peers], ahead: Duration::from_secs(2), ask: None, ..self }
    }

    pub(super) fn has(&self, kind: Kind) -> bool {
        self.kinds.contains(&kind)
    }

    /// Whether every daemon honours a pause soon after it begins: nothing keeps it from reading that, or what it has begun from its end.
    pub(super) fn pauses_at_once(&self) -> bool {
        let slow = [Kind::Slow, Kind::Failing, Kind::Commits, Kind::Held, Kind::Frozen];
        !slow.iter().any(|kind| self.has(*kind))
    }

    /// Whether an event is told at once that the receiver would take.
    pub(super) fn tells_at_once(&self) -> bool {
        !self.has(Kind::Told) && self.kinds.iter().all(|kind| Kind::DELAYS_NOBODY.contains(kind))
    }

    /// Whether an order that was there in time closes at its deadline.
    pub(super) fn is_punctual(&self) -> bool {
        self.ask.is_none() && !self.ahead.is_zero() && self.kinds.iter().all(|kind| Kind::DELAYS_NOBODY.contains(kind))
    }

    /// The same where daemons come and go besides; one that starts waits for a silent Redis, once.
    pub(super) fn is_punctual_but_for_deaths(&self) -> bool {
        let delays = |kind: &Kind| *kind == Kind::Redis || (*kind != Kind::Peers && !Kind::DELAYS_NOBODY.contains(kind));
        self.ask.is_none() && !self.ahead.is_zero() && !self.kinds.iter().any(delays)
    }
}
