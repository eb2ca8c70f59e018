-- The shop's own tables, for SQLite and PostgreSQL. They live in the same database as the queue:
-- that is the whole trick.

CREATE TABLE product (
    sku      TEXT PRIMARY KEY,
    title    TEXT NOT NULL,
    price    INTEGER NOT NULL,
    version  INTEGER NOT NULL,
    changes  INTEGER NOT NULL DEFAULT 1     -- events that came in time to matter
);

-- How many events of a product took effect, late ones included. Adding 1 is the kind of work that
-- shows every event run twice and every event lost, so the audit counts with it.
CREATE TABLE product_events (
    sku      TEXT PRIMARY KEY,
    n        INTEGER NOT NULL
);

CREATE TABLE orders (
    id       INTEGER PRIMARY KEY,
    amount   INTEGER NOT NULL CHECK (amount > 0),
    card     TEXT NOT NULL,
    status   TEXT NOT NULL DEFAULT 'new' CHECK (status IN ('new', 'paid')),
    charge   TEXT
);

CREATE TABLE supplier (
    name     TEXT PRIMARY KEY,
    stock    INTEGER NOT NULL DEFAULT 0
);

CREATE TABLE delivery (
    row      INTEGER PRIMARY KEY,
    supplier TEXT NOT NULL REFERENCES supplier(name),
    qty      INTEGER NOT NULL CHECK (qty BETWEEN 1 AND 1000000),
    vat      INTEGER NOT NULL
);
