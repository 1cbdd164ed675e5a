// Hears of closed orders by webhook, with Express and node-postgres.
import { createHmac, timingSafeEqual } from "node:crypto";
import express from "express";
import pg from "pg";

const db = new pg.Pool({ connectionString: process.env.DATABASE_URL });
const secret = Buffer.from(process.env.WEBHOOK_SECRET.replace(/^whsec_/, ""), "base64");

const app = express();
// The signature is over the very bytes that came, which express.json() would not keep.
app.post("/hooks/orders", express.raw({ type: () => true, limit: "1mb" }), async (request, response) => {
  if (!isGenuine(request.headers, request.body)) return response.sendStatus(401);
  await take(JSON.parse(request.body));
  response.sendStatus(204);
});
app.listen(process.env.PORT, "127.0.0.1");

/** Whether it is signed with our secret, and was so within the last five minutes. */
function isGenuine(headers, body) {
  const { "webhook-id": id, "webhook-timestamp": timestamp, "webhook-signature": signatures } = headers;
  if (!body || !id || !signatures || !(Math.abs(Date.now() / 1000 - timestamp) <= 300)) return false;
  const expected = createHmac("sha256", secret).update(`${id}.${timestamp}.`).update(body).digest();
  return signatures.split(" ").some((signature) => {
    const given = Buffer.from(signature.replace(/^v1,/, ""), "base64");
    return given.length === expected.length && timingSafeEqual(given, expected);
  });
}

/** The work and the event's id in one transaction: when the event comes again, nothing is done twice. */
async function take(event) {
  const connection = await db.connect();
  let failure;
  try {
    await connection.query("BEGIN");
    const { rowCount } = await connection.query("INSERT INTO seen (id) VALUES ($1) ON CONFLICT DO NOTHING", [event.id]);
    // What takes long is only noted here, and done later: order-closer waits for the answer.
    if (rowCount === 1) await connection.query("INSERT INTO mails (order_no) VALUES ($1)", [event.data.order_id]);
    await connection.query("COMMIT");
  } catch (error) {
    // Express answers 500, and the event comes again. What was begun is rolled back by closing the connection.
    failure = error;
    throw error;
  } finally {
    connection.release(failure);
  }
}
