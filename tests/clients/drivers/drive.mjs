// Calls what a client exports, as told on standard input: a verb, an order, and mostly a deadline in milliseconds.
import { createInterface } from "node:readline";

const client = await import(process.argv[2]);
for await (const line of createInterface({ input: process.stdin })) {
  const [verb, order, millis] = line.split(" ");
  try {
    console.log("=", (await client[verb](Number(order), millis && new Date(Number(millis)))) ?? "done");
  } catch (error) {
    console.log("=", `failed: ${error.stack.replaceAll("\n", " | ")}`);
  }
}
