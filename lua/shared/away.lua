-- A lot is away while it has a token, of a loader or of a stop, and once its partition has
-- a newer generation, which is written after a loss.
local function is_away(state_key, signals_key)
  local held = redis.call('HMGET', state_key, 'token', 'generation')
  return held[1] or held[2] ~= (redis.call('HGET', signals_key, 'generation') or '0')
end
