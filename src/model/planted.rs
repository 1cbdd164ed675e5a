//! Faults that are planted into the daemon's way to its servers, to see that the model finds them.

/// What is planted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Planted {
    /// Rows are read without being locked.
    NoLock,
    /// The judge takes a paid order for an unpaid one.
    PaidIsUnpaid,
    /// The judge takes a closed order for an unpaid one.
    ClosedIsUnpaid,
    /// The judge's clock is 20 ms ahead.
    HastyJudge,
    /// An event is forgotten now and then.
    NoEvent,
    /// What a transaction did beside the order's row stays when it is rolled back.
    HalfRollback,
    /// The sweep finds nothing.
    BlindSweep,
    /// The look-ahead finds nothing.
    BlindLookAhead,
    /// Nobody is asked before an order closes.
    NobodyAsks,
    /// Keys are not compared with rows.
    NoWitness,
    /// An answer is taken for good whatever it says.
    AlwaysClose,
}
