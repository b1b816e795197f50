-- +goose Up
-- The claims of an order.
CREATE INDEX IF NOT EXISTS claims_of_order ON claims (order_id);
