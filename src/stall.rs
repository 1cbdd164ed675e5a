//! What a limit says about the other side when this process stood still: nothing.
//!
//! A process that is stopped, or gets no processor, finds all its limits passed when it runs again, before it has read the
//! answers that came meanwhile.

use std::time::Duration;

use tokio::time::Instant;

/// A limit may be found passed so late while this process runs as it should.
const LATE: Duration = Duration::from_millis(100);

/// Asks once more where a question failed so late after the limit that it has that this process must have stood still.
///
/// # Errors
/// As the question.
pub async fn ask_again<T, E, F>(limit: Duration, question: impl Fn() -> F) -> Result<T, E>
where
    F: Future<Output = Result<T, E>>,
{
    let asked = Instant::now();
    match question().await {
        Err(_) if asked.elapsed() > limit + LATE => question().await,
        answer => answer,
    }
}
