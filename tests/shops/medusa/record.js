// How the rows of orders.sql and changes.txt came about: Medusa's own checkout places the orders, and its own workflow cancels them.
//
// In an empty folder, with a PostgreSQL database "medusa" to write to (DATABASE_URL):
//   npm init -y && npm install --legacy-peer-deps @medusajs/medusa@2.21.2 @medusajs/framework@2.21.2 @medusajs/cli@2.21.2 pg
//   write medusa-config.js: module.exports = require("@medusajs/framework/utils").defineConfig({ admin: { disable: true },
//     projectConfig: { databaseUrl: process.env.DATABASE_URL, http: { storeCors: "-", adminCors: "-", authCors: "-", jwtSecret: "-", cookieSecret: "-" } } })
//   npx medusa db:migrate --skip-scripts
//   npx medusa exec ./record.js                      places five orders, of which the fourth is captured, and prints their ids
//   CANCEL="<id> <id> <id>" npx medusa exec ./record.js   cancels these
// Copy the database before the last step (CREATE DATABASE … TEMPLATE medusa), make these orders a day older in both, let
// order-closer reconcile close the copy's with config/examples/medusa.toml, and compare the rows of both databases.

const flows = require("@medusajs/medusa/core-flows")

module.exports.default = async ({ container }) => {
  const run = async (workflow, input) => (await workflow(container).run({ input })).result
  const query = container.resolve("query")
  if (process.env.CANCEL) {
    for (const id of process.env.CANCEL.split(" ")) await run(flows.cancelOrderWorkflow, { order_id: id })
    return
  }

  const [channel] = await run(flows.createSalesChannelsWorkflow, { salesChannelsData: [{ name: "Web" }] })
  const [region] = await run(flows.createRegionsWorkflow, {
    regions: [{ name: "Europe", currency_code: "eur", countries: ["de"], payment_providers: ["pp_system_default"] }],
  })
  const [location] = await run(flows.createStockLocationsWorkflow, { locations: [{ name: "Berlin" }] })
  await run(flows.linkSalesChannelsToStockLocationWorkflow, { id: location.id, add: [channel.id] })
  const variant = (size) => ({
    title: size, sku: size, options: { Size: size }, manage_inventory: true, prices: [{ amount: 10, currency_code: "eur" }],
  })
  const [product] = await run(flows.createProductsWorkflow, {
    products: [{
      title: "Shirt", status: "published", options: [{ title: "Size", values: ["S", "M"] }], variants: [variant("S"), variant("M")],
      sales_channels: [{ id: channel.id }],
    }],
  })
  const { data: items } = await query.graph({ entity: "inventory_item", fields: ["id"] })
  for (const { id } of items) await container.resolve("inventory").updateInventoryItems({ id, requires_shipping: false })
  await run(flows.createInventoryLevelsWorkflow, {
    inventory_levels: items.map(({ id }) => ({ inventory_item_id: id, location_id: location.id, stocked_quantity: 100 })),
  })

  const place = async (lines) => {
    const cart = await run(flows.createCartWorkflow, {
      region_id: region.id, sales_channel_id: channel.id, currency_code: "eur", email: "ann@example.com",
      items: lines.map(([{ id }, quantity]) => ({ variant_id: id, quantity })),
    })
    await run(flows.createPaymentCollectionForCartWorkflow, { cart_id: cart.id })
    const { data: [{ payment_collection }] } =
      await query.graph({ entity: "cart", fields: ["payment_collection.id"], filters: { id: cart.id } })
    await run(flows.createPaymentSessionsWorkflow, { payment_collection_id: payment_collection.id, provider_id: "pp_system_default" })
    return (await run(flows.completeCartWorkflow, { id: cart.id })).id
  }
  const [s, m] = product.variants
  const ids = []
  for (const lines of [[[s, 2], [m, 1]], [[s, 2], [m, 1]], [[s, 3]], [[m, 4]], [[m, 1]]]) ids.push(await place(lines))
  const { data: [paid] } =
    await query.graph({ entity: "order", fields: ["payment_collections.payments.id"], filters: { id: ids[3] } })
  await run(flows.capturePaymentWorkflow, { payment_id: paid.payment_collections[0].payments[0].id })
  console.log(ids.join(" "))
}
