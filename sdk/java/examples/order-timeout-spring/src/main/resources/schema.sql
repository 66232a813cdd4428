CREATE TABLE IF NOT EXISTS orders (id text PRIMARY KEY, state text NOT NULL);
