// How long the keys live that versions 4, 5 and 6 of node-redis write, by how they are told: one line each.
for (const version of ["redis-4", "redis-5", "redis"]) {
  const { createClient } = await import(version);
  const redis = createClient({ url: process.env.REDIS_URL });
  await redis.connect();
  const value = Date.now() + 600_000;
  const forms = { words: ["PXAT", value], option: [{ PXAT: value }], expiration: [{ expiration: { type: "PXAT", value } }] };
  for (const [form, options] of Object.entries(forms)) {
    await redis.set("key", "", ...options);
    console.log(version, form, (await redis.pTTL("key")) > 0 ? "expires" : "never expires");
  }
}
process.exit();
