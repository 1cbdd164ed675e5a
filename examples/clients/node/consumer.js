// Reads of closed orders from the stream, with node-redis and node-postgres. Start as many as you like, each with a name of its own.
import pg from "pg";
import { createClient } from "redis";

const [stream, group, consumer] = ["orders:closed", "mailer", process.env.CONSUMER];
// An entry that a consumer has had for so long without acknowledging it is given to another.
const abandoned = Number(process.env.ABANDONED_MS ?? 60_000);

const db = new pg.Pool({ connectionString: process.env.DATABASE_URL });
const redis = createClient({ url: process.env.REDIS_URL });
redis.on("error", (error) => console.warn("Redis is away:", error.message));
await redis.connect();

for (;;) {
  try {
    await makeGroup();
    const claimed = await redis.xAutoClaim(stream, group, consumer, abandoned, "0", { COUNT: 100 });
    // null: deleted from the stream meanwhile, because it is longer than max_len.
    await takeAll(claimed.messages.filter((entry) => entry !== null));
    const read = await redis.xReadGroup(group, consumer, { key: stream, id: ">" }, { COUNT: 100, BLOCK: 1_000 });
    await takeAll(read?.[0].messages ?? []);
  } catch (error) {
    // What was not acknowledged comes again.
    console.warn("once more in a second:", error.message);
    await new Promise((resolve) => setTimeout(resolve, 1_000));
  }
}

/** Each time, because a Redis that comes back empty has none. From "0": what is there already, too. */
async function makeGroup() {
  try {
    await redis.xGroupCreate(stream, group, "0", { MKSTREAM: true });
  } catch (error) {
    if (!error.message.startsWith("BUSYGROUP")) throw error;
  }
}

async function takeAll(entries) {
  for (const { id, message } of entries) {
    await take(message);
    // After the commit: who dies in between finds the event's id next time.
    await redis.xAck(stream, group, id);
  }
}

/** The work and the event's id in one transaction: when the event comes again, nothing is done twice. */
async function take(event) {
  const connection = await db.connect();
  let failure;
  try {
    await connection.query("BEGIN");
    const { rowCount } = await connection.query("INSERT INTO seen (id) VALUES ($1) ON CONFLICT DO NOTHING", [event.id]);
    if (rowCount === 1) await connection.query("INSERT INTO mails (order_no) VALUES ($1)", [event.order_id]);
    await connection.query("COMMIT");
  } catch (error) {
    failure = error;
    throw error;
  } finally {
    // A connection with an error is closed, which rolls back.
    connection.release(failure);
  }
}
