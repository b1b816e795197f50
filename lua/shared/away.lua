-- A lot is live or away. It is away while a loader's token is in it, or someone stopped it, and once its partition has a newer
-- generation, which is written after Redis lost data.
local function is_away(state_key, signals_key)
  local held = redis.call('HMGET', state_key, 'token', 'generation')
  return held[1] or held[2] ~= (redis.call('HGET', signals_key, 'generation') or '0')
end
