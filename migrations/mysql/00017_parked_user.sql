-- +goose Up
-- Whose claim is parked: a user's look-up shows it. The table is empty or short.
SET @add_parked_user = IF((SELECT COUNT(*) FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = 'parked_events'
  AND column_name = 'user_id') > 0, 'DO 0',
  'ALTER TABLE parked_events
    ADD COLUMN user_id VARCHAR(128) NOT NULL DEFAULT '''' COMMENT ''as the event says; empty when it says none'',
    ADD KEY parked_events_of_user (user_id)');
PREPARE add_parked_user FROM @add_parked_user;
EXECUTE add_parked_user;
DEALLOCATE PREPARE add_parked_user;
UPDATE parked_events SET user_id = LEFT(COALESCE(JSON_UNQUOTE(JSON_EXTRACT(CONVERT(payload USING utf8mb4), '$.user_id')), ''), 128)
WHERE user_id = '' AND JSON_VALID(CONVERT(payload USING utf8mb4));
