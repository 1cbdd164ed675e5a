-- Vendure 3.7.3: the tables that a cancelled order touches, as it made them itself.
CREATE TABLE global_settings (
    "createdAt" timestamp without time zone DEFAULT now() NOT NULL,
    "updatedAt" timestamp without time zone DEFAULT now() NOT NULL,
    "availableLanguages" text NOT NULL,
    "trackInventory" boolean DEFAULT true NOT NULL,
    "outOfStockThreshold" integer DEFAULT 0 NOT NULL,
    id integer NOT NULL
);

CREATE SEQUENCE global_settings_id_seq
    AS integer
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

ALTER SEQUENCE global_settings_id_seq OWNED BY global_settings.id;

CREATE TABLE history_entry (
    "createdAt" timestamp without time zone DEFAULT now() NOT NULL,
    "updatedAt" timestamp without time zone DEFAULT now() NOT NULL,
    type character varying NOT NULL,
    "isPublic" boolean NOT NULL,
    data text NOT NULL,
    id integer NOT NULL,
    discriminator character varying NOT NULL,
    "administratorId" integer,
    "customerId" integer,
    "orderId" integer
);

CREATE SEQUENCE history_entry_id_seq
    AS integer
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

ALTER SEQUENCE history_entry_id_seq OWNED BY history_entry.id;

CREATE TABLE "order" (
    "createdAt" timestamp without time zone DEFAULT now() NOT NULL,
    "updatedAt" timestamp without time zone DEFAULT now() NOT NULL,
    type character varying DEFAULT 'Regular'::character varying NOT NULL,
    code character varying NOT NULL,
    state character varying NOT NULL,
    active boolean DEFAULT true NOT NULL,
    "orderPlacedAt" timestamp without time zone,
    "couponCodes" text NOT NULL,
    "shippingAddress" text NOT NULL,
    "billingAddress" text NOT NULL,
    "currencyCode" character varying NOT NULL,
    id integer NOT NULL,
    "aggregateOrderId" integer,
    "customerId" integer,
    "taxZoneId" integer,
    "subTotal" integer NOT NULL,
    "subTotalWithTax" integer NOT NULL,
    shipping integer DEFAULT 0 NOT NULL,
    "shippingWithTax" integer DEFAULT 0 NOT NULL
);

CREATE SEQUENCE order_id_seq
    AS integer
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

ALTER SEQUENCE order_id_seq OWNED BY "order".id;

CREATE TABLE order_line (
    "createdAt" timestamp without time zone DEFAULT now() NOT NULL,
    "updatedAt" timestamp without time zone DEFAULT now() NOT NULL,
    quantity integer NOT NULL,
    "orderPlacedQuantity" integer DEFAULT 0 NOT NULL,
    "listPriceIncludesTax" boolean NOT NULL,
    adjustments text NOT NULL,
    "taxLines" text NOT NULL,
    id integer NOT NULL,
    "sellerChannelId" integer,
    "shippingLineId" integer,
    "productVariantId" integer NOT NULL,
    "taxCategoryId" integer,
    "initialListPrice" integer,
    "listPrice" integer NOT NULL,
    "featuredAssetId" integer,
    "orderId" integer
);

CREATE SEQUENCE order_line_id_seq
    AS integer
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

ALTER SEQUENCE order_line_id_seq OWNED BY order_line.id;

CREATE TABLE payment (
    "createdAt" timestamp without time zone DEFAULT now() NOT NULL,
    "updatedAt" timestamp without time zone DEFAULT now() NOT NULL,
    method character varying NOT NULL,
    state character varying NOT NULL,
    "errorMessage" character varying,
    "transactionId" character varying,
    metadata text NOT NULL,
    id integer NOT NULL,
    amount integer NOT NULL,
    "orderId" integer
);

CREATE SEQUENCE payment_id_seq
    AS integer
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

ALTER SEQUENCE payment_id_seq OWNED BY payment.id;

CREATE TABLE product_variant (
    "createdAt" timestamp without time zone DEFAULT now() NOT NULL,
    "updatedAt" timestamp without time zone DEFAULT now() NOT NULL,
    "deletedAt" timestamp without time zone,
    enabled boolean DEFAULT true NOT NULL,
    sku character varying NOT NULL,
    "outOfStockThreshold" integer DEFAULT 0 NOT NULL,
    "useGlobalOutOfStockThreshold" boolean DEFAULT true NOT NULL,
    "trackInventory" character varying DEFAULT 'INHERIT'::character varying NOT NULL,
    id integer NOT NULL,
    "featuredAssetId" integer,
    "taxCategoryId" integer,
    "productId" integer
);

CREATE SEQUENCE product_variant_id_seq
    AS integer
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

ALTER SEQUENCE product_variant_id_seq OWNED BY product_variant.id;

CREATE TABLE stock_level (
    "createdAt" timestamp without time zone DEFAULT now() NOT NULL,
    "updatedAt" timestamp without time zone DEFAULT now() NOT NULL,
    "stockOnHand" integer NOT NULL,
    "stockAllocated" integer NOT NULL,
    id integer NOT NULL,
    "productVariantId" integer NOT NULL,
    "stockLocationId" integer NOT NULL
);

CREATE SEQUENCE stock_level_id_seq
    AS integer
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

ALTER SEQUENCE stock_level_id_seq OWNED BY stock_level.id;

CREATE TABLE stock_location (
    "createdAt" timestamp without time zone DEFAULT now() NOT NULL,
    "updatedAt" timestamp without time zone DEFAULT now() NOT NULL,
    name character varying NOT NULL,
    description character varying NOT NULL,
    id integer NOT NULL
);

CREATE SEQUENCE stock_location_id_seq
    AS integer
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

ALTER SEQUENCE stock_location_id_seq OWNED BY stock_location.id;

CREATE TABLE stock_movement (
    "createdAt" timestamp without time zone DEFAULT now() NOT NULL,
    "updatedAt" timestamp without time zone DEFAULT now() NOT NULL,
    type character varying NOT NULL,
    quantity integer NOT NULL,
    id integer NOT NULL,
    "stockLocationId" integer NOT NULL,
    discriminator character varying NOT NULL,
    "productVariantId" integer,
    "orderLineId" integer
);

CREATE SEQUENCE stock_movement_id_seq
    AS integer
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

ALTER SEQUENCE stock_movement_id_seq OWNED BY stock_movement.id;

CREATE TABLE surcharge (
    "createdAt" timestamp without time zone DEFAULT now() NOT NULL,
    "updatedAt" timestamp without time zone DEFAULT now() NOT NULL,
    description character varying NOT NULL,
    "listPriceIncludesTax" boolean NOT NULL,
    sku character varying NOT NULL,
    "taxLines" text NOT NULL,
    id integer NOT NULL,
    "listPrice" integer NOT NULL,
    "orderId" integer,
    "orderModificationId" integer
);

CREATE SEQUENCE surcharge_id_seq
    AS integer
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

ALTER SEQUENCE surcharge_id_seq OWNED BY surcharge.id;

ALTER TABLE ONLY global_settings ALTER COLUMN id SET DEFAULT nextval('global_settings_id_seq'::regclass);

ALTER TABLE ONLY history_entry ALTER COLUMN id SET DEFAULT nextval('history_entry_id_seq'::regclass);

ALTER TABLE ONLY "order" ALTER COLUMN id SET DEFAULT nextval('order_id_seq'::regclass);

ALTER TABLE ONLY order_line ALTER COLUMN id SET DEFAULT nextval('order_line_id_seq'::regclass);

ALTER TABLE ONLY payment ALTER COLUMN id SET DEFAULT nextval('payment_id_seq'::regclass);

ALTER TABLE ONLY product_variant ALTER COLUMN id SET DEFAULT nextval('product_variant_id_seq'::regclass);

ALTER TABLE ONLY stock_level ALTER COLUMN id SET DEFAULT nextval('stock_level_id_seq'::regclass);

ALTER TABLE ONLY stock_location ALTER COLUMN id SET DEFAULT nextval('stock_location_id_seq'::regclass);

ALTER TABLE ONLY stock_movement ALTER COLUMN id SET DEFAULT nextval('stock_movement_id_seq'::regclass);

ALTER TABLE ONLY surcharge ALTER COLUMN id SET DEFAULT nextval('surcharge_id_seq'::regclass);

ALTER TABLE order_line ADD CONSTRAINT "PK_01a7c973d9f30479647e44f9892" PRIMARY KEY (id);

ALTER TABLE "order" ADD CONSTRAINT "PK_1031171c13130102495201e3e20" PRIMARY KEY (id);

ALTER TABLE product_variant ADD CONSTRAINT "PK_1ab69c9935c61f7c70791ae0a9f" PRIMARY KEY (id);

ALTER TABLE stock_level ADD CONSTRAINT "PK_88ff7d9dfb57dc9d435e365eb69" PRIMARY KEY (id);

ALTER TABLE stock_movement ADD CONSTRAINT "PK_9fe1232f916686ae8cf00294749" PRIMARY KEY (id);

ALTER TABLE surcharge ADD CONSTRAINT "PK_a62b89257bcc802b5d77346f432" PRIMARY KEY (id);

ALTER TABLE stock_location ADD CONSTRAINT "PK_adf770067d0df1421f525fa25cc" PRIMARY KEY (id);

ALTER TABLE history_entry ADD CONSTRAINT "PK_b65bd95b0d2929668589d57b97a" PRIMARY KEY (id);

ALTER TABLE payment ADD CONSTRAINT "PK_fcaec7df5adf9cac408c686b2ab" PRIMARY KEY (id);

ALTER TABLE global_settings ADD CONSTRAINT "PK_fec5e2c0bf238e30b25d4a82976" PRIMARY KEY (id);

CREATE INDEX "IDX_0e6f516053cf982b537836e21c" ON product_variant USING btree ("featuredAssetId");

CREATE INDEX "IDX_124456e637cca7a415897dce65" ON "order" USING btree ("customerId");

CREATE INDEX "IDX_154eb685f9b629033bd266df7f" ON surcharge USING btree ("orderId");

CREATE INDEX "IDX_239cfca2a55b98b90b6bef2e44" ON order_line USING btree ("orderId");

CREATE INDEX "IDX_3a05127e67435b4d2332ded7c9" ON history_entry USING btree ("orderId");

CREATE INDEX "IDX_43ac602f839847fdb91101f30e" ON history_entry USING btree ("customerId");

CREATE INDEX "IDX_6901d8715f5ebadd764466f7bd" ON order_line USING btree ("sellerChannelId");

CREATE INDEX "IDX_6e420052844edf3a5506d863ce" ON product_variant USING btree ("productId");

CREATE UNIQUE INDEX "IDX_729b3eea7ce540930dbb706949" ON "order" USING btree (code);

CREATE INDEX "IDX_73a78d7df09541ac5eba620d18" ON "order" USING btree ("aggregateOrderId");

CREATE INDEX "IDX_77be94ce9ec650446617946227" ON order_line USING btree ("taxCategoryId");

CREATE UNIQUE INDEX "IDX_7fc20486b8cfd33dc84c96e168" ON stock_level USING btree ("productVariantId", "stockLocationId");

CREATE INDEX "IDX_92f8c334ef06275f9586fd0183" ON history_entry USING btree ("administratorId");

CREATE INDEX "IDX_984c48572468c69661a0b7b049" ON stock_level USING btree ("stockLocationId");

CREATE INDEX "IDX_9950eae3180f39c71978748bd0" ON stock_level USING btree ("productVariantId");

CREATE INDEX "IDX_9f065453910ea77d4be8e92618" ON order_line USING btree ("featuredAssetId");

CREATE INDEX "IDX_a2fe7172eeae9f1cca86f8f573" ON stock_movement USING btree ("stockLocationId");

CREATE INDEX "IDX_a49c5271c39cc8174a0535c808" ON surcharge USING btree ("orderModificationId");

CREATE INDEX "IDX_af13739f4962eab899bdff34be" ON "order" USING btree ("orderPlacedAt");

CREATE INDEX "IDX_cbcd22193eda94668e84d33f18" ON order_line USING btree ("productVariantId");

CREATE INDEX "IDX_d09d285fe1645cd2f0db811e29" ON payment USING btree ("orderId");

CREATE INDEX "IDX_d2c8d5fca981cc820131f81aa8" ON stock_movement USING btree ("orderLineId");

CREATE INDEX "IDX_dc9ac68b47da7b62249886affb" ON order_line USING btree ("shippingLineId");

CREATE INDEX "IDX_e38dca0d82fd64c7cf8aac8b8e" ON product_variant USING btree ("taxCategoryId");

CREATE INDEX "IDX_e65ba3882557cab4febb54809b" ON stock_movement USING btree ("productVariantId");

ALTER TABLE surcharge ADD CONSTRAINT "FK_154eb685f9b629033bd266df7fa" FOREIGN KEY ("orderId") REFERENCES "order"(id) ON DELETE CASCADE;

ALTER TABLE order_line ADD CONSTRAINT "FK_239cfca2a55b98b90b6bef2e44f" FOREIGN KEY ("orderId") REFERENCES "order"(id) ON DELETE CASCADE;

ALTER TABLE history_entry ADD CONSTRAINT "FK_3a05127e67435b4d2332ded7c9e" FOREIGN KEY ("orderId") REFERENCES "order"(id) ON DELETE CASCADE;

ALTER TABLE "order" ADD CONSTRAINT "FK_73a78d7df09541ac5eba620d181" FOREIGN KEY ("aggregateOrderId") REFERENCES "order"(id);

ALTER TABLE stock_level ADD CONSTRAINT "FK_984c48572468c69661a0b7b0494" FOREIGN KEY ("stockLocationId") REFERENCES stock_location(id) ON DELETE CASCADE;

ALTER TABLE stock_level ADD CONSTRAINT "FK_9950eae3180f39c71978748bd08" FOREIGN KEY ("productVariantId") REFERENCES product_variant(id) ON DELETE CASCADE;

ALTER TABLE stock_movement ADD CONSTRAINT "FK_a2fe7172eeae9f1cca86f8f573a" FOREIGN KEY ("stockLocationId") REFERENCES stock_location(id) ON DELETE CASCADE;

ALTER TABLE order_line ADD CONSTRAINT "FK_cbcd22193eda94668e84d33f185" FOREIGN KEY ("productVariantId") REFERENCES product_variant(id) ON DELETE CASCADE;

ALTER TABLE payment ADD CONSTRAINT "FK_d09d285fe1645cd2f0db811e293" FOREIGN KEY ("orderId") REFERENCES "order"(id);

ALTER TABLE stock_movement ADD CONSTRAINT "FK_d2c8d5fca981cc820131f81aa83" FOREIGN KEY ("orderLineId") REFERENCES order_line(id);

ALTER TABLE stock_movement ADD CONSTRAINT "FK_e65ba3882557cab4febb54809bb" FOREIGN KEY ("productVariantId") REFERENCES product_variant(id);
