-- +goose Up
-- As for lots, see 00102.
CREATE INDEX IF NOT EXISTS stock_moves_reload ON stock_moves (reload_upto);
