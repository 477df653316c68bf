"""The programs: `build(change)` of each gives its step, given a number: negative before the first
steady one."""
