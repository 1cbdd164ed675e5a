-- A shop of one's own: the tables of config/examples/plain-postgres.toml.

CREATE TYPE order_status AS ENUM ('pending', 'paid', 'shipped', 'cancelled');

CREATE TABLE orders (
  id uuid PRIMARY KEY,
  customer text NOT NULL,
  status order_status NOT NULL DEFAULT 'pending',
  payment_method text,
  expires_at timestamptz,
  cancelled_at timestamptz
);

CREATE TABLE inventory (
  sku text PRIMARY KEY,
  available integer NOT NULL CHECK (available >= 0),
  reserved integer NOT NULL CHECK (reserved >= 0)
);

CREATE TABLE reservations (
  order_id uuid NOT NULL REFERENCES orders,
  sku text NOT NULL REFERENCES inventory,
  quantity integer NOT NULL CHECK (quantity > 0),
  PRIMARY KEY (order_id, sku)
);

CREATE TABLE coupons (
  code text PRIMARY KEY,
  used integer NOT NULL CHECK (used >= 0),
  most integer NOT NULL
);

CREATE TABLE coupon_uses (
  order_id uuid NOT NULL REFERENCES orders,
  code text NOT NULL REFERENCES coupons,
  PRIMARY KEY (order_id, code)
);

CREATE TABLE order_history (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  order_id uuid NOT NULL REFERENCES orders,
  status order_status NOT NULL,
  note text NOT NULL,
  at timestamptz NOT NULL
);
