-- Medusa 2.21.2: the tables that a cancelled order touches, as its own migrations made them.
CREATE TABLE capture (
    id text NOT NULL,
    amount numeric NOT NULL,
    raw_amount jsonb NOT NULL,
    payment_id text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    deleted_at timestamp with time zone,
    created_by text,
    metadata jsonb
);

CREATE TYPE order_status_enum AS ENUM ('pending', 'completed', 'draft', 'archived', 'canceled', 'requires_action');

CREATE TABLE fulfillment (
    id text NOT NULL,
    location_id text NOT NULL,
    packed_at timestamp with time zone,
    shipped_at timestamp with time zone,
    delivered_at timestamp with time zone,
    canceled_at timestamp with time zone,
    data jsonb,
    provider_id text,
    shipping_option_id text,
    metadata jsonb,
    delivery_address_id text,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    deleted_at timestamp with time zone,
    marked_shipped_by text,
    created_by text,
    requires_shipping boolean DEFAULT true NOT NULL
);

CREATE TABLE inventory_item (
    id text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    deleted_at timestamp with time zone,
    sku text,
    origin_country text,
    hs_code text,
    mid_code text,
    material text,
    weight integer,
    length integer,
    height integer,
    width integer,
    requires_shipping boolean DEFAULT true NOT NULL,
    description text,
    title text,
    thumbnail text,
    metadata jsonb,
    unit_of_measure text
);

CREATE TABLE inventory_level (
    id text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    deleted_at timestamp with time zone,
    inventory_item_id text NOT NULL,
    location_id text NOT NULL,
    stocked_quantity numeric DEFAULT 0 NOT NULL,
    reserved_quantity numeric DEFAULT 0 NOT NULL,
    incoming_quantity numeric DEFAULT 0 NOT NULL,
    metadata jsonb,
    raw_stocked_quantity jsonb,
    raw_reserved_quantity jsonb,
    raw_incoming_quantity jsonb
);

CREATE TABLE "order" (
    id text NOT NULL,
    region_id text,
    display_id integer,
    customer_id text,
    version integer DEFAULT 1 NOT NULL,
    sales_channel_id text,
    status order_status_enum DEFAULT 'pending'::order_status_enum NOT NULL,
    is_draft_order boolean DEFAULT false NOT NULL,
    email text,
    currency_code text NOT NULL,
    shipping_address_id text,
    billing_address_id text,
    no_notification boolean,
    metadata jsonb,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    deleted_at timestamp with time zone,
    canceled_at timestamp with time zone,
    custom_display_id text,
    locale text
);

CREATE SEQUENCE order_display_id_seq
    AS integer
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

ALTER SEQUENCE order_display_id_seq OWNED BY "order".display_id;

CREATE TABLE order_fulfillment (
    order_id character varying(255) NOT NULL,
    fulfillment_id character varying(255) NOT NULL,
    id character varying(255) NOT NULL,
    created_at timestamp with time zone DEFAULT CURRENT_TIMESTAMP NOT NULL,
    updated_at timestamp with time zone DEFAULT CURRENT_TIMESTAMP NOT NULL,
    deleted_at timestamp with time zone
);

CREATE TABLE order_item (
    id text NOT NULL,
    order_id text NOT NULL,
    version integer NOT NULL,
    item_id text NOT NULL,
    quantity numeric NOT NULL,
    raw_quantity jsonb NOT NULL,
    fulfilled_quantity numeric NOT NULL,
    raw_fulfilled_quantity jsonb DEFAULT '{"value": "0", "precision": 20}'::jsonb NOT NULL,
    shipped_quantity numeric NOT NULL,
    raw_shipped_quantity jsonb DEFAULT '{"value": "0", "precision": 20}'::jsonb NOT NULL,
    return_requested_quantity numeric NOT NULL,
    raw_return_requested_quantity jsonb DEFAULT '{"value": "0", "precision": 20}'::jsonb NOT NULL,
    return_received_quantity numeric NOT NULL,
    raw_return_received_quantity jsonb DEFAULT '{"value": "0", "precision": 20}'::jsonb NOT NULL,
    return_dismissed_quantity numeric NOT NULL,
    raw_return_dismissed_quantity jsonb DEFAULT '{"value": "0", "precision": 20}'::jsonb NOT NULL,
    written_off_quantity numeric NOT NULL,
    raw_written_off_quantity jsonb DEFAULT '{"value": "0", "precision": 20}'::jsonb NOT NULL,
    metadata jsonb,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    deleted_at timestamp with time zone,
    delivered_quantity numeric DEFAULT 0 NOT NULL,
    raw_delivered_quantity jsonb DEFAULT '{"value": "0", "precision": 20}'::jsonb NOT NULL,
    unit_price numeric,
    raw_unit_price jsonb,
    compare_at_unit_price numeric,
    raw_compare_at_unit_price jsonb
);

CREATE TABLE order_line_item (
    id text NOT NULL,
    totals_id text,
    title text NOT NULL,
    subtitle text,
    thumbnail text,
    variant_id text,
    product_id text,
    product_title text,
    product_description text,
    product_subtitle text,
    product_type text,
    product_collection text,
    product_handle text,
    variant_sku text,
    variant_barcode text,
    variant_title text,
    variant_option_values jsonb,
    requires_shipping boolean DEFAULT true NOT NULL,
    is_discountable boolean DEFAULT true NOT NULL,
    is_tax_inclusive boolean DEFAULT false NOT NULL,
    compare_at_unit_price numeric,
    raw_compare_at_unit_price jsonb,
    unit_price numeric NOT NULL,
    raw_unit_price jsonb NOT NULL,
    metadata jsonb,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    deleted_at timestamp with time zone,
    is_custom_price boolean DEFAULT false NOT NULL,
    product_type_id text,
    is_giftcard boolean DEFAULT false NOT NULL
);

CREATE TABLE order_payment_collection (
    order_id character varying(255) NOT NULL,
    payment_collection_id character varying(255) NOT NULL,
    id character varying(255) NOT NULL,
    created_at timestamp with time zone DEFAULT CURRENT_TIMESTAMP NOT NULL,
    updated_at timestamp with time zone DEFAULT CURRENT_TIMESTAMP NOT NULL,
    deleted_at timestamp with time zone
);

CREATE TABLE payment (
    id text NOT NULL,
    amount numeric NOT NULL,
    raw_amount jsonb NOT NULL,
    currency_code text NOT NULL,
    provider_id text NOT NULL,
    data jsonb,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    deleted_at timestamp with time zone,
    captured_at timestamp with time zone,
    canceled_at timestamp with time zone,
    payment_collection_id text NOT NULL,
    payment_session_id text NOT NULL,
    metadata jsonb
);

CREATE TABLE payment_collection (
    id text NOT NULL,
    currency_code text NOT NULL,
    amount numeric NOT NULL,
    raw_amount jsonb NOT NULL,
    authorized_amount numeric,
    raw_authorized_amount jsonb,
    captured_amount numeric,
    raw_captured_amount jsonb,
    refunded_amount numeric,
    raw_refunded_amount jsonb,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    deleted_at timestamp with time zone,
    completed_at timestamp with time zone,
    status text DEFAULT 'not_paid'::text NOT NULL,
    metadata jsonb,
    CONSTRAINT payment_collection_status_check CHECK ((status = ANY (ARRAY['not_paid'::text, 'awaiting'::text, 'authorized'::text, 'partially_authorized'::text, 'canceled'::text, 'failed'::text, 'partially_captured'::text, 'completed'::text])))
);

CREATE TABLE reservation_item (
    id text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    deleted_at timestamp with time zone,
    line_item_id text,
    location_id text NOT NULL,
    quantity numeric NOT NULL,
    external_id text,
    description text,
    created_by text,
    metadata jsonb,
    inventory_item_id text NOT NULL,
    allow_backorder boolean DEFAULT false,
    raw_quantity jsonb
);

ALTER TABLE ONLY "order" ALTER COLUMN display_id SET DEFAULT nextval('order_display_id_seq'::regclass);

ALTER TABLE capture ADD CONSTRAINT capture_pkey PRIMARY KEY (id);

ALTER TABLE fulfillment ADD CONSTRAINT fulfillment_pkey PRIMARY KEY (id);

ALTER TABLE inventory_item ADD CONSTRAINT inventory_item_pkey PRIMARY KEY (id);

ALTER TABLE inventory_level ADD CONSTRAINT inventory_level_pkey PRIMARY KEY (id);

ALTER TABLE order_fulfillment ADD CONSTRAINT order_fulfillment_pkey PRIMARY KEY (order_id, fulfillment_id);

ALTER TABLE order_item ADD CONSTRAINT order_item_pkey PRIMARY KEY (id);

ALTER TABLE order_line_item ADD CONSTRAINT order_line_item_pkey PRIMARY KEY (id);

ALTER TABLE order_payment_collection ADD CONSTRAINT order_payment_collection_pkey PRIMARY KEY (order_id, payment_collection_id);

ALTER TABLE "order" ADD CONSTRAINT order_pkey PRIMARY KEY (id);

ALTER TABLE payment_collection ADD CONSTRAINT payment_collection_pkey PRIMARY KEY (id);

ALTER TABLE payment ADD CONSTRAINT payment_pkey PRIMARY KEY (id);

ALTER TABLE reservation_item ADD CONSTRAINT reservation_item_pkey PRIMARY KEY (id);

CREATE INDEX "IDX_capture_deleted_at" ON capture USING btree (deleted_at);

CREATE INDEX "IDX_capture_payment_id" ON capture USING btree (payment_id) WHERE (deleted_at IS NULL);

CREATE INDEX "IDX_deleted_at_-e8d2543e" ON order_fulfillment USING btree (deleted_at);

CREATE INDEX "IDX_deleted_at_f42b9949" ON order_payment_collection USING btree (deleted_at);

CREATE INDEX "IDX_fulfillment_deleted_at" ON fulfillment USING btree (deleted_at) WHERE (deleted_at IS NOT NULL);

CREATE INDEX "IDX_fulfillment_id_-e8d2543e" ON order_fulfillment USING btree (fulfillment_id) WHERE (deleted_at IS NULL);

CREATE INDEX "IDX_fulfillment_location_id" ON fulfillment USING btree (location_id) WHERE (deleted_at IS NULL);

CREATE INDEX "IDX_fulfillment_shipping_option_id" ON fulfillment USING btree (shipping_option_id) WHERE (deleted_at IS NULL);

CREATE INDEX "IDX_id_-e8d2543e" ON order_fulfillment USING btree (id);

CREATE INDEX "IDX_id_f42b9949" ON order_payment_collection USING btree (id);

CREATE INDEX "IDX_inventory_item_deleted_at" ON inventory_item USING btree (deleted_at) WHERE (deleted_at IS NOT NULL);

CREATE UNIQUE INDEX "IDX_inventory_item_sku" ON inventory_item USING btree (sku) WHERE (deleted_at IS NULL);

CREATE INDEX "IDX_inventory_level_deleted_at" ON inventory_level USING btree (deleted_at) WHERE (deleted_at IS NOT NULL);

CREATE INDEX "IDX_inventory_level_inventory_item_id" ON inventory_level USING btree (inventory_item_id) WHERE (deleted_at IS NULL);

CREATE INDEX "IDX_inventory_level_location_id" ON inventory_level USING btree (location_id) WHERE (deleted_at IS NULL);

CREATE UNIQUE INDEX "IDX_inventory_level_location_id_inventory_item_id" ON inventory_level USING btree (inventory_item_id, location_id) WHERE (deleted_at IS NULL);

CREATE INDEX "IDX_line_item_product_type_id" ON order_line_item USING btree (product_type_id) WHERE ((deleted_at IS NULL) AND (product_type_id IS NOT NULL));

CREATE INDEX "IDX_order_billing_address_id" ON "order" USING btree (billing_address_id) WHERE (deleted_at IS NULL);

CREATE INDEX "IDX_order_currency_code" ON "order" USING btree (currency_code) WHERE (deleted_at IS NULL);

CREATE UNIQUE INDEX "IDX_order_custom_display_id" ON "order" USING btree (custom_display_id) WHERE (deleted_at IS NULL);

CREATE INDEX "IDX_order_customer_id" ON "order" USING btree (customer_id) WHERE (deleted_at IS NULL);

CREATE INDEX "IDX_order_deleted_at" ON "order" USING btree (deleted_at);

CREATE INDEX "IDX_order_display_id" ON "order" USING btree (display_id) WHERE (deleted_at IS NULL);

CREATE INDEX "IDX_order_id_-e8d2543e" ON order_fulfillment USING btree (order_id) WHERE (deleted_at IS NULL);

CREATE INDEX "IDX_order_id_f42b9949" ON order_payment_collection USING btree (order_id) WHERE (deleted_at IS NULL);

CREATE INDEX "IDX_order_is_draft_order" ON "order" USING btree (is_draft_order) WHERE (deleted_at IS NULL);

CREATE INDEX "IDX_order_item_deleted_at" ON order_item USING btree (deleted_at) WHERE (deleted_at IS NOT NULL);

CREATE INDEX "IDX_order_item_item_id" ON order_item USING btree (item_id) WHERE (deleted_at IS NULL);

CREATE INDEX "IDX_order_item_order_id" ON order_item USING btree (order_id) WHERE (deleted_at IS NULL);

CREATE INDEX "IDX_order_item_order_id_version" ON order_item USING btree (order_id, version) WHERE (deleted_at IS NULL);

CREATE INDEX "IDX_order_line_item_product_id" ON order_line_item USING btree (product_id) WHERE (deleted_at IS NULL);

CREATE INDEX "IDX_order_line_item_variant_id" ON order_line_item USING btree (variant_id) WHERE (deleted_at IS NULL);

CREATE INDEX "IDX_order_region_id" ON "order" USING btree (region_id) WHERE (deleted_at IS NULL);

CREATE INDEX "IDX_order_sales_channel_id" ON "order" USING btree (sales_channel_id) WHERE (deleted_at IS NULL);

CREATE INDEX "IDX_order_shipping_address_id" ON "order" USING btree (shipping_address_id) WHERE (deleted_at IS NULL);

CREATE INDEX "IDX_payment_collection_deleted_at" ON payment_collection USING btree (deleted_at) WHERE (deleted_at IS NOT NULL);

CREATE INDEX "IDX_payment_collection_id_f42b9949" ON order_payment_collection USING btree (payment_collection_id) WHERE (deleted_at IS NULL);

CREATE INDEX "IDX_payment_deleted_at" ON payment USING btree (deleted_at) WHERE (deleted_at IS NOT NULL);

CREATE INDEX "IDX_payment_payment_collection_id" ON payment USING btree (payment_collection_id) WHERE (deleted_at IS NULL);

CREATE INDEX "IDX_payment_payment_session_id" ON payment USING btree (payment_session_id);

CREATE UNIQUE INDEX "IDX_payment_payment_session_id_unique" ON payment USING btree (payment_session_id) WHERE (deleted_at IS NULL);

CREATE INDEX "IDX_payment_provider_id" ON payment USING btree (provider_id) WHERE (deleted_at IS NULL);

CREATE INDEX "IDX_reservation_item_deleted_at" ON reservation_item USING btree (deleted_at) WHERE (deleted_at IS NOT NULL);

CREATE INDEX "IDX_reservation_item_inventory_item_id" ON reservation_item USING btree (inventory_item_id) WHERE (deleted_at IS NULL);

CREATE INDEX "IDX_reservation_item_line_item_id" ON reservation_item USING btree (line_item_id) WHERE (deleted_at IS NULL);

CREATE INDEX "IDX_reservation_item_location_id" ON reservation_item USING btree (location_id) WHERE (deleted_at IS NULL);

ALTER TABLE capture ADD CONSTRAINT capture_payment_id_foreign FOREIGN KEY (payment_id) REFERENCES payment(id) ON UPDATE CASCADE ON DELETE CASCADE;

ALTER TABLE inventory_level ADD CONSTRAINT inventory_level_inventory_item_id_foreign FOREIGN KEY (inventory_item_id) REFERENCES inventory_item(id) ON UPDATE CASCADE ON DELETE CASCADE;

ALTER TABLE order_item ADD CONSTRAINT order_item_order_id_foreign FOREIGN KEY (order_id) REFERENCES "order"(id) ON UPDATE CASCADE ON DELETE CASCADE;

ALTER TABLE order_line_item ADD CONSTRAINT order_line_item_totals_id_foreign FOREIGN KEY (totals_id) REFERENCES order_item(id) ON UPDATE CASCADE ON DELETE CASCADE;

ALTER TABLE payment ADD CONSTRAINT payment_payment_collection_id_foreign FOREIGN KEY (payment_collection_id) REFERENCES payment_collection(id) ON UPDATE CASCADE ON DELETE CASCADE;

ALTER TABLE reservation_item ADD CONSTRAINT reservation_item_inventory_item_id_foreign FOREIGN KEY (inventory_item_id) REFERENCES inventory_item(id) ON UPDATE CASCADE ON DELETE CASCADE;
