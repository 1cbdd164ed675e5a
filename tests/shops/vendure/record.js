// How the rows of orders.sql and changes.txt came about: Vendure's own services make the orders, and cancel them.
//
// In an empty folder, with an empty PostgreSQL database (PGHOST, PGPORT, PGUSER, PGPASSWORD, PGDATABASE):
//   npm init -y && npm install @vendure/core@3.7.3 pg
//   SYNC=1 node record.js                 makes its tables and seven orders, and prints their ids
//   CANCEL="1 2 3 6" node record.js       cancels these
// Copy the database before the last step (CREATE DATABASE … TEMPLATE …), make these orders' updatedAt a day older in both, let
// order-closer reconcile close the copy's with config/examples/vendure.toml, and compare the rows of both databases.

const core = require('@vendure/core')
const {
  bootstrap, ChannelService, CountryService, CustomerService, DefaultLogger, LogLevel, OrderService, PaymentMethodService, ProductService,
  ProductVariantService, RequestContextService, ShippingMethodService, TaxCategoryService, TaxRateService, TransactionalConnection, User,
  ZoneService,
} = core

const bank = new core.PaymentMethodHandler({ code: 'bank-transfer', description: [{ languageCode: 'en', value: 'Bank transfer' }], args: {},
  createPayment: (ctx, order, amount) => ({ amount, state: 'Authorized', transactionId: 'b', metadata: {} }), settlePayment: () => ({ success: true }) })

const config = {
  apiOptions: { port: 39077, adminApiPath: 'admin-api', shopApiPath: 'shop-api', hostname: '127.0.0.1' },
  authOptions: { tokenMethod: ['bearer'], superadminCredentials: { identifier: 'superadmin', password: 'superadmin' }, cookieOptions: { secret: 'x' } },
  dbConnectionOptions: { type: 'postgres', synchronize: process.env.SYNC === '1', host: process.env.PGHOST, port: +process.env.PGPORT,
    username: process.env.PGUSER, password: process.env.PGPASSWORD, database: process.env.PGDATABASE, logging: false },
  paymentOptions: { paymentMethodHandlers: [bank] }, plugins: [],
  logger: new DefaultLogger({ level: LogLevel.Warn }),
}
const rerun = process.env.CANCEL
bootstrap(config).then(async app => {
  const ctx = await app.get(RequestContextService).create({ apiType: 'admin' })
  const channels = app.get(ChannelService)
  const channel = await channels.getDefaultChannel()
  const admin = await app.get(TransactionalConnection).rawConnection.getRepository(User).findOne({ where: { identifier: 'superadmin' }, relations: ['roles', 'roles.channels'] })
  const make = async () => app.get(RequestContextService).create({ apiType: 'admin', channelOrToken: await channels.getDefaultChannel(), user: admin })
  const orders = app.get(OrderService)
  if (rerun) {
    const c = await make()
    for (const id of rerun.split(' ')) {
      const order = await orders.findOne(c, id)
      const result = order.active ? await orders.transitionToState(c, id, 'Cancelled') : await orders.cancelOrder(c, { orderId: id, reason: 'not paid in time' })
      console.log(id, result.state ?? result)
    }
    await new Promise(r => setTimeout(r, 1500)); await app.close(); process.exit(0)
  }
  let c = await make()
  const zone = await app.get(ZoneService).create(c, { name: 'Europe' })
  const country = await app.get(CountryService).create(c, { code: 'DE', enabled: true, translations: [{ languageCode: 'en', name: 'Germany' }] })
  await app.get(ZoneService).addMembersToZone(c, { zoneId: zone.id, memberIds: [country.id] })
  const tax = await app.get(TaxCategoryService).create(c, { name: 'Standard', isDefault: true })
  await app.get(TaxRateService).create(c, { name: 'VAT', enabled: true, value: 19, categoryId: tax.id, zoneId: zone.id })
  await channels.update(c, { id: channel.id, defaultTaxZoneId: zone.id, defaultShippingZoneId: zone.id, trackInventory: true })
  c = await make()
  const product = await app.get(ProductService).create(c, { enabled: true, translations: [{ languageCode: 'en', name: 'Shirt', slug: 'shirt', description: '' }] })
  const variant = (sku, price) => ({ productId: product.id, sku, price, taxCategoryId: tax.id, stockOnHand: 100, trackInventory: 'TRUE', translations: [{ languageCode: 'en', name: sku }] })
  const option = await app.get(core.ProductOptionGroupService).create(c, { code: 'size', translations: [{ languageCode: 'en', name: 'Size' }] })
  await app.get(ProductService).addOptionGroupToProduct(c, product.id, option.id)
  const os = []
  for (const code of ['s', 'm']) os.push(await app.get(core.ProductOptionService).create(c, option.id, { code, translations: [{ languageCode: 'en', name: code }] }))
  const [s, m] = await app.get(ProductVariantService).create(c, [{ ...variant('S', 1000), optionIds: [os[0].id] }, { ...variant('M', 1500), optionIds: [os[1].id] }])
  const shipping = await app.get(ShippingMethodService).create(c, { code: 'post', fulfillmentHandler: 'manual-fulfillment', checker: { code: 'default-shipping-eligibility-checker', arguments: [{ name: 'orderMinimum', value: '0' }] }, calculator: { code: 'default-shipping-calculator', arguments: [{ name: 'rate', value: '500' }, { name: 'taxRate', value: '19' }, { name: 'includesTax', value: 'auto' }] }, translations: [{ languageCode: 'en', name: 'Post', description: '' }] })
  await app.get(PaymentMethodService).create(c, { code: 'bank-transfer', enabled: true, handler: { code: 'bank-transfer', arguments: [] }, translations: [{ languageCode: 'en', name: 'Bank' }] })
  const ok = r => { if (r && r.errorCode) throw new Error(r.errorCode + ' ' + JSON.stringify(r)); return r }
  const order = async (lines, pay) => {
    const o = await orders.create(c)
    for (const [v, q] of lines) ok(await orders.addItemToOrder(c, o.id, v.id, q))
    const customer = ok(await app.get(CustomerService).createOrUpdate(c, { emailAddress: 'ann@example.com', firstName: 'Ann', lastName: 'A' }, true))
    ok(await orders.addCustomerToOrder(c, o.id, customer))
    await orders.setShippingAddress(c, o.id, { streetLine1: 'x', countryCode: 'DE' })
    ok(await orders.setShippingMethod(c, o.id, [shipping.id]))
    ok(await orders.transitionToState(c, o.id, 'ArrangingPayment'))
    let p
    if (pay) p = ok(await app.get(TransactionalConnection).withTransaction(c, tx => orders.addPaymentToOrder(tx, o.id, { method: 'bank-transfer', metadata: {} })))
    if (pay === 'settle') { const full = await orders.findOne(c, o.id, ['payments']); ok(await app.get(TransactionalConnection).withTransaction(c, tx => orders.settlePayment(tx, full.payments[0].id))) }
    return o.id
  }
  const ids = []
  for (const [lines, pay] of [
    [[[s, 2], [m, 1]], 'authorize'], [[[s, 2], [m, 1]], 'authorize'], [[[s, 3]], 'authorize'], [[[m, 4]], 'settle'], [[[m, 1]], 'authorize'],
    [[[s, 1]], null], [[[s, 1]], null]]) ids.push(await order(lines, pay))
  console.log('ORDERS', ids.join(' '))
  await new Promise(r => setTimeout(r, 1500)); await app.close(); process.exit(0)
}).catch(e => { console.error(e); process.exit(1) })
