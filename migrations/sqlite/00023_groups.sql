-- +goose Up
CREATE TABLE IF NOT EXISTS consumer_groups (
  name          TEXT     NOT NULL PRIMARY KEY, -- as in XGROUP CREATE
  registered_at DATETIME NOT NULL              -- UTC
);
