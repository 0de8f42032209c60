//! Computes the size of the warm pool.

use crate::config::PoolConfig;

impl PoolConfig {
    /// The number of VMs of this size to keep ready, within the memory that the pool may use.
    pub fn size_for(&self, memory_mb: u32) -> u32 {
        if !self.enabled {
            return 0;
        }
        let wanted = self.min_size.max(self.target_free).min(self.max_size);
        wanted.min(self.max_memory_mb / memory_mb.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warm_pool_size_is_limited_by_memory() {
        let pool =
            PoolConfig { min_size: 1, target_free: 3, max_size: 10, max_memory_mb: 4096, enabled: true };
        assert_eq!(pool.size_for(512), 3);
        assert_eq!(pool.size_for(2048), 2);
        assert_eq!(pool.size_for(8192), 0);
        assert_eq!(pool.size_for(0), 3);
        assert_eq!(PoolConfig { max_size: 2, ..pool.clone() }.size_for(512), 2);
        assert_eq!(PoolConfig { enabled: false, ..pool }.size_for(512), 0);
    }
}
