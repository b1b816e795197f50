-- +goose Up
-- Whose claim is parked.
ALTER TABLE parked_events ADD COLUMN user_id TEXT NOT NULL DEFAULT '';
CREATE INDEX parked_events_of_user ON parked_events (user_id);
UPDATE parked_events SET user_id = SUBSTR(COALESCE(json_extract(CAST(payload AS TEXT), '$.user_id'), ''), 1, 128)
WHERE json_valid(CAST(payload AS TEXT));
