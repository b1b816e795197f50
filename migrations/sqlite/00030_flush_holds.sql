-- +goose Up
-- A row of stock_flushes says when the first hold of its claims ends.
ALTER TABLE stock_flushes ADD COLUMN due_ms BIGINT NULL; -- when the first hold of these claims ends, milliseconds since 1970 by the clock of Redis; NULL: none of them is open
CREATE INDEX IF NOT EXISTS stock_flushes_due ON stock_flushes (due_ms, id);
