-- +goose Up
-- The claims of an order. A claim that is not redeemed has none, so an insert adds to the end of the index. On a large table this takes
-- minutes, and claims are written meanwhile (ALGORITHM=INPLACE, LOCK=NONE is what both servers do here by themselves).
SET @add_orders = IF((SELECT COUNT(*) FROM information_schema.statistics WHERE table_schema = DATABASE() AND table_name = 'claims'
  AND index_name = 'claims_of_order') > 0, 'DO 0',
  'ALTER TABLE claims ADD KEY claims_of_order (order_id)');
PREPARE add_orders FROM @add_orders;
EXECUTE add_orders;
DEALLOCATE PREPARE add_orders;
