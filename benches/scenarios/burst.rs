//! A flash sale: all orders due at one instant, each gives its stock back. How far is order-closer from bare SQL?

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::{
    flash_sale,
    options::{Base, Options},
    plots,
    progress::Progress,
    report::{Figures, Goal, median},
    servers,
    servers::Server,
    table::{Table, grouped, rounded},
};

/// An article that this many orders want at once is a hot one.
const HOT: u32 = 1_000;

/// Every database with every number of orders and of articles.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Burst {
    cases: Vec<Case>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Case {
    database: Base,
    orders: u32,
    skus: u32,
    bound_s: Vec<f64>,
    order_closer_s: Vec<f64>,
}

impl Case {
    fn bound_per_s(&self) -> f64 {
        f64::from(self.orders) / median(&self.bound_s)
    }

    fn order_closer_per_s(&self) -> f64 {
        f64::from(self.orders) / median(&self.order_closer_s)
    }

    fn ratio(&self) -> f64 {
        self.order_closer_per_s() / self.bound_per_s()
    }

    fn goal(&self) -> Goal {
        let what = format!(
            "{}, {} orders of {} SKUs: ratio to the bound",
            self.database.name(),
            grouped(self.orders.into()),
            grouped(self.skus.into())
        );
        Goal::at_least(what, self.ratio(), if self.orders / self.skus >= HOT { 0.6 } else { 0.8 }, "")
    }
}

/// Measures.
pub async fn run(options: &Options, progress: &Progress) -> Burst {
    let cases = options.databases.len() * options.bursts.len() * options.skus.len();
    progress.begin("burst", cases * (2 * options.rounds as usize + 1));
    let mut burst = Burst { cases: Vec::new() };
    for &database in &options.databases {
        let server = Server::start(database);
        let redis = servers::redis();
        for &orders in &options.bursts {
            for &skus in &options.skus {
                let mut shop = server.shop(None).await;
                let mut case = Case { database, orders, skus, bound_s: Vec::new(), order_closer_s: Vec::new() };
                let step = |who: &str| progress.step(&format!("{}, {orders} orders of {skus} SKUs: {who}", database.name()));
                for _ in 0..options.rounds {
                    step("the bound");
                    case.bound_s.push(flash_sale::by_bound(&mut shop, orders, skus).await.as_secs_f64());
                    step("order-closer");
                    case.order_closer_s.push(flash_sale::by_daemons(&mut shop, &redis, orders, skus, 1).await.took.as_secs_f64());
                }
                step("the bound");
                case.bound_s.push(flash_sale::by_bound(&mut shop, orders, skus).await.as_secs_f64());
                progress.result(&format!(
                    "bound {} per s, order-closer {} per s, ratio {:.2}",
                    rounded(case.bound_per_s()),
                    rounded(case.order_closer_per_s()),
                    case.ratio()
                ));
                burst.cases.push(case);
            }
        }
    }
    burst
}

impl Figures for Burst {
    const TITLE: &str = "Burst";
    const ABOUT: &str = "All orders are due at one instant; each has one item whose quantity goes back to the stock. Time runs from the \
        deadline to the last commit. The bound is a single client that knows the ids and runs the bare set-based SQL in batches of 1,000, \
        on the same server, before and after each turn of the daemon; medians of all turns.";

    fn tables(&self) -> Vec<Table> {
        let mut table =
            Table::new(["database", "orders", "SKUs", "bound, closures/s", "order-closer, closures/s", "ratio", "last commit after"]);
        for case in &self.cases {
            table.row([
                case.database.name().to_owned(),
                grouped(case.orders.into()),
                grouped(case.skus.into()),
                rounded(case.bound_per_s()),
                rounded(case.order_closer_per_s()),
                format!("{:.2}", case.ratio()),
                format!("{:.2} s", median(&case.order_closer_s)),
            ]);
        }
        vec![table]
    }

    fn goals(&self) -> Vec<Goal> {
        self.cases.iter().map(Case::goal).collect()
    }

    fn plot(&self, folder: &Path) -> (&'static str, &'static str) {
        let file = "burst.svg";
        let of = |database: Base| self.cases.iter().filter(move |case| case.database == database);
        let databases: Vec<Base> =
            [Base::Postgres, Base::Mariadb, Base::Sqlite].into_iter().filter(|base| of(*base).next().is_some()).collect();
        plots::page(&folder.join(file), 60 + 260 * databases.len() as u32, |page| {
            let rest = plots::legend(
                page,
                &[("a single client with bare SQL in batches", plots::GREY), ("order-closer; above, its ratio to that", plots::BLUE)],
            )?;
            for (area, &database) in rest.split_evenly((databases.len(), 1)).iter().zip(&databases) {
                let bars = plots::Bars {
                    title: database.name(),
                    y: "closures per second",
                    groups: of(database)
                        .map(|case| [format!("{} orders", grouped(case.orders.into())), format!("{} SKUs", grouped(case.skus.into()))])
                        .collect(),
                    series: vec![
                        (plots::GREY, of(database).map(Case::bound_per_s).collect()),
                        (plots::BLUE, of(database).map(Case::order_closer_per_s).collect()),
                    ],
                    notes: of(database).map(|case| format!("{:.2}", case.ratio())).collect(),
                    stacked: false,
                };
                bars.draw(area)?;
            }
            Ok(())
        });
        (file, "Closures per second in a flash sale, beside bare SQL")
    }
}
