-- Spree Commerce: the tables that a canceled order touches, with the columns, types and indexes of the migrations in
-- spree/core/db/migrate at tag v5.6.1 of https://github.com/spree/spree (20210914000000_spree_four_three.rb,
-- 20260429000001_create_spree_order_cancellations.rb, 20260429000003_add_status_to_spree_orders.rb).
-- Columns that only describe, and indexes on them, are left out.

CREATE TABLE spree_orders (
  id bigserial PRIMARY KEY,
  number varchar(32),
  item_total decimal(10, 2) NOT NULL DEFAULT 0.0,
  total decimal(10, 2) NOT NULL DEFAULT 0.0,
  state varchar,
  user_id bigint,
  completed_at timestamp,
  payment_total decimal(10, 2) DEFAULT 0.0,
  shipment_state varchar,
  payment_state varchar,
  email varchar,
  created_at timestamp(6) NOT NULL,
  updated_at timestamp(6) NOT NULL,
  currency varchar,
  item_count integer DEFAULT 0,
  approved_at timestamp,
  canceled_at timestamp,
  canceler_id bigint,
  store_id bigint,
  state_lock_version integer NOT NULL DEFAULT 0,
  status varchar
);
CREATE INDEX index_spree_orders_on_completed_at ON spree_orders (completed_at);
CREATE UNIQUE INDEX index_spree_orders_on_number ON spree_orders (number);
CREATE INDEX index_spree_orders_on_status ON spree_orders (status);

CREATE TABLE spree_order_cancellations (
  id bigserial PRIMARY KEY,
  order_id bigint NOT NULL,
  reason varchar NOT NULL,
  note text,
  restock_items boolean NOT NULL,
  refund_payments boolean NOT NULL,
  refund_amount decimal(10, 2),
  notify_customer boolean NOT NULL,
  canceled_by_type varchar,
  canceled_by_id bigint,
  metadata jsonb,
  created_at timestamp(6) NOT NULL,
  updated_at timestamp(6) NOT NULL
);

CREATE TABLE spree_line_items (
  id bigserial PRIMARY KEY,
  variant_id bigint,
  order_id bigint,
  quantity integer NOT NULL,
  price decimal(10, 2) NOT NULL,
  created_at timestamp(6) NOT NULL,
  updated_at timestamp(6) NOT NULL
);
CREATE INDEX index_spree_line_items_on_order_id ON spree_line_items (order_id);

CREATE TABLE spree_shipments (
  id bigserial PRIMARY KEY,
  tracking varchar,
  number varchar,
  cost decimal(10, 2) DEFAULT 0.0,
  shipped_at timestamp,
  order_id bigint,
  state varchar,
  created_at timestamp(6) NOT NULL,
  updated_at timestamp(6) NOT NULL,
  stock_location_id bigint
);
CREATE INDEX index_spree_shipments_on_order_id ON spree_shipments (order_id);

CREATE TABLE spree_inventory_units (
  id bigserial PRIMARY KEY,
  state varchar,
  variant_id bigint,
  order_id bigint,
  shipment_id bigint,
  created_at timestamp(6) NOT NULL,
  updated_at timestamp(6) NOT NULL,
  pending boolean DEFAULT true,
  line_item_id bigint,
  quantity integer DEFAULT 1,
  original_return_item_id bigint
);
CREATE INDEX index_inventory_units_on_order_id ON spree_inventory_units (order_id);
CREATE INDEX index_inventory_units_on_variant_id ON spree_inventory_units (variant_id);

CREATE TABLE spree_products (
  id bigserial PRIMARY KEY,
  name varchar NOT NULL DEFAULT '',
  slug varchar,
  created_at timestamp(6) NOT NULL,
  updated_at timestamp(6) NOT NULL
);

CREATE TABLE spree_taxonomies (
  id bigserial PRIMARY KEY,
  name varchar NOT NULL,
  created_at timestamp(6) NOT NULL,
  updated_at timestamp(6) NOT NULL
);

CREATE TABLE spree_taxons (
  id bigserial PRIMARY KEY,
  parent_id bigint,
  name varchar NOT NULL,
  taxonomy_id bigint,
  lft bigint,
  rgt bigint,
  created_at timestamp(6) NOT NULL,
  updated_at timestamp(6) NOT NULL
);
CREATE INDEX index_spree_taxons_on_lft ON spree_taxons (lft);
CREATE INDEX index_spree_taxons_on_rgt ON spree_taxons (rgt);

CREATE TABLE spree_products_taxons (
  id bigserial PRIMARY KEY,
  product_id bigint,
  taxon_id bigint
);
CREATE UNIQUE INDEX index_spree_products_taxons_on_product_id_and_taxon_id ON spree_products_taxons (product_id, taxon_id);

CREATE TABLE spree_variants (
  id bigserial PRIMARY KEY,
  sku varchar NOT NULL DEFAULT '',
  deleted_at timestamp,
  is_master boolean DEFAULT false,
  product_id bigint,
  track_inventory boolean DEFAULT true,
  updated_at timestamp NOT NULL,
  created_at timestamp NOT NULL
);

CREATE TABLE spree_stock_items (
  id bigserial PRIMARY KEY,
  stock_location_id bigint,
  variant_id bigint,
  count_on_hand integer NOT NULL DEFAULT 0,
  created_at timestamp(6) NOT NULL,
  updated_at timestamp(6) NOT NULL,
  backorderable boolean DEFAULT false,
  deleted_at timestamp
);
CREATE INDEX stock_item_by_loc_and_var_id ON spree_stock_items (stock_location_id, variant_id);

CREATE TABLE spree_stock_movements (
  id bigserial PRIMARY KEY,
  stock_item_id bigint,
  quantity integer DEFAULT 0,
  action varchar,
  created_at timestamp(6) NOT NULL,
  updated_at timestamp(6) NOT NULL,
  originator_type varchar,
  originator_id bigint
);

CREATE TABLE spree_payment_methods (
  id bigserial PRIMARY KEY,
  type varchar,
  name varchar,
  active boolean DEFAULT true,
  deleted_at timestamp,
  created_at timestamp(6) NOT NULL,
  updated_at timestamp(6) NOT NULL,
  auto_capture boolean
);

CREATE TABLE spree_payments (
  id bigserial PRIMARY KEY,
  amount decimal(10, 2) NOT NULL DEFAULT 0.0,
  order_id bigint,
  source_type varchar,
  source_id bigint,
  payment_method_id bigint,
  state varchar,
  response_code varchar,
  created_at timestamp(6) NOT NULL,
  updated_at timestamp(6) NOT NULL,
  number varchar
);
CREATE INDEX index_spree_payments_on_order_id ON spree_payments (order_id);

CREATE TABLE spree_state_changes (
  id bigserial PRIMARY KEY,
  name varchar,
  previous_state varchar,
  stateful_id bigint,
  user_id bigint,
  stateful_type varchar,
  next_state varchar,
  created_at timestamp(6) NOT NULL,
  updated_at timestamp(6) NOT NULL
);
CREATE INDEX index_spree_state_changes_on_stateful_id_and_stateful_type ON spree_state_changes (stateful_id, stateful_type);
