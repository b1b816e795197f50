-- A lot is away while it has a token, set by a loader
-- or by a stop. It is also away once its partition
-- has a newer generation, written after a loss.
local function is_away(state_key, signals_key)
  local held = redis.call('HMGET', state_key, 'token', 'generation')
  return held[1] or held[2] ~= (redis.call('HGET', signals_key, 'generation') or '0')
end
