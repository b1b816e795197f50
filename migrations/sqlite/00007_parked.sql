-- +goose Up
-- Whether people gave a parked claim up.
ALTER TABLE parked_events ADD COLUMN discarded_at DATETIME  NULL; -- UTC, when somebody gave it up; NULL: what it claims still counts as claimed
