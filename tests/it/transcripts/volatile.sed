# What differs from machine to machine and from time to time, for `sed -E`.
s/[a-z][a-z0-9-]*-[0-9]+c\>/MACHINE/g
s/\<[0-9]{8}T[0-9]{6}Z(-[0-9]+)?/MOMENT/g
s/-[0-9a-f]{12}\//-HASH\//g
s/\<[0-9a-f]{12}\>/REVISION/g
s/^  [0-9.]+ (ms|s)$/  TIME/
/^[0-9.]+ (ms|s|min): measuring /d
s/ ?(No case is more than [0-9.]+ % slower|Each case is at least [0-9.]+( %|x) faster)\.//
s/(build_seconds is) [0-9.]+/\1 SECONDS/
s/saved [0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:]+/saved MOMENT/
