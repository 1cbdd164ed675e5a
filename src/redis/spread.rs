//! Reads of many keys that a cluster has on several nodes: a pipeline to each, all at once, one key a command.
//!
//! A node that does not answer costs the answers to its own keys and no others.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use fred::{clients::Client, error::Error, interfaces::ClientLike, types::Value};
use futures::future::join_all;
use tokio::time::Instant;

use super::{
    cluster::{Cluster, Map, Member, Redirect},
    error::{RedisError, Result},
    expiry::{Expiries, Expiry},
};
use crate::config::Endpoint;

/// The keys of a node, by their places in the question.
#[derive(Default)]
struct Part {
    places: Vec<usize>,
    /// Whether each is to be asked for with ASKING: its slot is on its way here.
    asking: bool,
}

type Answer<T> = std::result::Result<T, Error>;

impl Cluster {
    /// As [`super::Commands::touch`]. What could not be asked counts as there: nobody else will speak of it.
    pub(super) async fn touch(&self, keys: &[String], limit: Duration, needs: &str) -> Result<u64> {
        let map = self.map(limit).await?;
        let (parts, unowned) = parts(&map, keys, 0..keys.len());
        let (mut there, mut failure, mut is_known) = (unowned.len() as u64, None, false);
        let mut astray = 0;
        let ask = |(node, part)| touch_part(&map, node, part, keys, (limit, needs));
        for answer in join_all(parts.iter().map(ask)).await {
            match answer {
                Ok(answers) => {
                    is_known = true;
                    astray += answers.iter().filter(|answer| answer.is_err()).count();
                    there += answers.into_iter().map(|answer| answer.unwrap_or(1)).sum::<u64>();
                }
                Err((error, keys)) => {
                    (astray, there) = (astray + keys, there + keys as u64);
                    failure = Some(error);
                }
            }
        }
        if unowned.len() + astray > 0 {
            self.look_again();
        }
        failure.filter(|_| !is_known).map_or(Ok(there), Err)
    }

    /// As [`super::Commands::expiries`]. Fails only if no node answers.
    pub(super) async fn expiries(&self, keys: &[String], limit: Duration, needs: &str) -> Result<Expiries> {
        let until = Instant::now() + limit;
        let map = self.map(limit).await?;
        let (mut all, mut now, mut failure) = (vec![Expiry::Unknown; keys.len()], None, None);
        let (mut parts, unowned) = parts(&map, keys, 0..keys.len());
        if keys.is_empty() {
            // That asks for the time.
            let is_there = |(_, member): &(&Endpoint, &Arc<Member>)| member.supervisor.server().is_some();
            let one = map.members.iter().find(is_there).or_else(|| map.members.iter().next());
            parts.extend(one.map(|(node, _)| (node.clone(), Part::default())));
        }
        let (mut moved, mut asked) = self.round(&map, &parts, keys, (until, needs), (&mut all, &mut now, &mut failure)).await;
        moved.extend(unowned);
        if !moved.is_empty() {
            let mut changes = self.watch();
            changes.mark_unchanged();
            self.look_again();
            // Not for so long that the answers of all others would come too late.
            tokio::time::timeout(limit / 3, changes.changed()).await.ok();
        }
        let map = self.map(limit).await?;
        asked.extend(self::parts(&map, keys, moved).0.into_iter().filter(|(_, part)| !part.places.is_empty()));
        if !asked.is_empty() {
            self.round(&map, &asked, keys, (until, needs), (&mut all, &mut now, &mut failure)).await;
        }
        match (now, failure) {
            (Some(now), _) => Ok(Expiries { now, keys: all }),
            (None, Some(error)) => Err(error),
            (None, None) => Err(RedisError::unreachable("nobody in the cluster has these keys")),
        }
    }

    /// Asks each node for its keys. Returns the places of those that have moved, and those that another is to be asked for.
    async fn round(
        &self,
        map: &Map,
        parts: &BTreeMap<Endpoint, Part>,
        keys: &[String],
        (until, needs): (Instant, &str),
        (all, now, failure): (&mut [Expiry], &mut Option<i64>, &mut Option<RedisError>),
    ) -> (Vec<usize>, BTreeMap<Endpoint, Part>) {
        let (mut moved, mut asked) = (Vec::new(), BTreeMap::<Endpoint, Part>::new());
        let ask = |(node, part)| expiries_of_part(map, node, part, keys, (until, needs));
        for ((node, part), answer) in parts.iter().zip(join_all(parts.iter().map(ask)).await) {
            let (clock, answers) = match answer {
                Ok(answer) => answer,
                Err(error) => {
                    *failure = Some(error.of_node(node));
                    continue;
                }
            };
            now.get_or_insert(clock);
            for (place, answer) in part.places.iter().zip(answers) {
                match answer {
                    Ok(millis) => all[*place] = Expiry::of(millis, clock),
                    Err(error) => match Redirect::read(&error, node) {
                        Some(Redirect::Ask(at)) => {
                            let part = asked.entry(at).or_default();
                            part.asking = true;
                            part.places.push(*place);
                        }
                        Some(Redirect::Moved) | None => moved.push(*place),
                    },
                }
            }
        }
        (moved, asked)
    }
}

/// Touches the keys of a node. Fails with how many there are.
async fn touch_part(
    map: &Map,
    node: &Endpoint,
    part: &Part,
    keys: &[String],
    (limit, needs): (Duration, &str),
) -> std::result::Result<Vec<Answer<u64>>, (RedisError, usize)> {
    let asked: Vec<&str> = part.places.iter().map(|at| keys[*at].as_str()).collect();
    let failed = |error| (error, asked.len());
    let member = map.members.get(node).ok_or_else(|| failed(RedisError::unreachable("a node that nobody knows yet")))?;
    let answer = member.run(needs, limit, async |client| Ok(exists(&client, &asked).await)).await;
    let answer = answer.and_then(|answers| accepted(answers, node, member, needs));
    member.supervisor.note("exists", answer.as_ref().err());
    answer.map_err(failed)
}

/// Asks a node for its clock and when its keys are to expire.
async fn expiries_of_part(
    map: &Map,
    node: &Endpoint,
    part: &Part,
    keys: &[String],
    (until, needs): (Instant, &str),
) -> Result<(i64, Vec<Answer<i64>>)> {
    let asked: Vec<&str> = part.places.iter().map(|at| keys[*at].as_str()).collect();
    let member = map.members.get(node).ok_or_else(|| RedisError::unreachable("a node that nobody knows yet"))?;
    let limit = until.saturating_duration_since(Instant::now());
    let answer = member.run(needs, limit, async |client| expiries(&client, &asked, part.asking).await).await;
    let answer = answer.and_then(|(now, answers)| Ok((now, accepted(answers, node, member, needs)?)));
    member.supervisor.note("pttl", answer.as_ref().err());
    answer
}

/// Fails with the first refusal that does not lead to another node.
fn accepted<T>(answers: Vec<Answer<T>>, node: &Endpoint, member: &Member, needs: &str) -> Result<Vec<Answer<T>>> {
    let refusal = answers.iter().find_map(|answer| answer.as_ref().err().filter(|error| Redirect::read(error, node).is_none()));
    match refusal {
        Some(error) => Err(member.supervisor.sort(error, needs)),
        None => Ok(answers),
    }
}

/// Which node has which of these keys, and those that nobody has.
fn parts(map: &Map, keys: &[String], places: impl IntoIterator<Item = usize>) -> (BTreeMap<Endpoint, Part>, Vec<usize>) {
    let (mut parts, mut unowned) = (BTreeMap::<Endpoint, Part>::new(), Vec::new());
    for place in places {
        match map.owner(&keys[place]) {
            Some((node, _)) => parts.entry(node.clone()).or_default().places.push(place),
            None => unowned.push(place),
        }
    }
    (parts, unowned)
}

async fn exists(client: &Client, keys: &[&str]) -> Vec<Answer<u64>> {
    let pipeline = client.pipeline();
    for key in keys {
        if let Err(error) = pipeline.custom::<(), _>(fred::cmd!("EXISTS"), vec![*key]).await {
            return vec![Err(error)];
        }
    }
    pipeline.try_all::<u64>().await
}

/// The server's clock, and what PTTL says of each key.
async fn expiries(client: &Client, keys: &[&str], asking: bool) -> Answer<(i64, Vec<Answer<i64>>)> {
    let pipeline = client.pipeline();
    pipeline.custom::<(), _>(fred::cmd!("TIME"), Vec::<String>::new()).await?;
    for key in keys {
        if asking {
            pipeline.custom::<(), _>(fred::cmd!("ASKING"), Vec::<String>::new()).await?;
        }
        pipeline.custom::<(), _>(fred::cmd!("PTTL"), vec![*key]).await?;
    }
    let mut answers = pipeline.try_all::<Value>().await.into_iter();
    let (seconds, micros): (i64, i64) = answers.next().unwrap_or(Ok(Value::Null))?.convert()?;
    let skipped = usize::from(asking);
    let answers = answers.skip(skipped).step_by(1 + skipped).map(|answer| answer?.convert()).collect();
    Ok((seconds * 1_000_000 + micros, answers))
}
