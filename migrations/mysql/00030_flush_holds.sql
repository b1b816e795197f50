-- +goose Up
-- A row of stock_flushes says when the first hold of its claims ends. MySQL's ALTER TABLE knows no IF NOT EXISTS and does not roll back,
-- so it runs only where the column is not there yet.
SET @add_due = IF((SELECT COUNT(*) FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = 'stock_flushes'
  AND column_name = 'due_ms') > 0, 'DO 0',
  'ALTER TABLE stock_flushes
    ADD COLUMN due_ms BIGINT NULL COMMENT ''when the first hold of these claims ends, milliseconds since 1970 by the clock of Redis; NULL: none of them is open'',
    ADD KEY stock_flushes_due (due_ms, id)');
PREPARE add_due FROM @add_due;
EXECUTE add_due;
DEALLOCATE PREPARE add_due;
